# Laid over the copy that is applied: the provider that can be had as a file, and AWS as moto plays it at PORT.
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "3.39.0"
    }
  }
}

provider "aws" {
  access_key                  = "testing"
  secret_key                  = "testing"
  max_retries                 = 2 # with 25, a call that moto does not know looks like a hang
  s3_force_path_style         = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true

  endpoints {
    cloudwatch = "http://127.0.0.1:PORT"
    ec2        = "http://127.0.0.1:PORT"
    iam        = "http://127.0.0.1:PORT"
    s3         = "http://127.0.0.1:PORT"
    ssm        = "http://127.0.0.1:PORT"
    sts        = "http://127.0.0.1:PORT"
  }
}

# 3.39.0 forgets the default tags of an address that has none of its own.
resource "aws_eip" "gateway" {
  tags = { Purpose = "test" }
}
