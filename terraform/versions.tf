# What it takes: Terraform 1.9 for validations that look at several variables, and the provider in its fifth or sixth
# generation.
terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = merge({ Project = "bifrost", Name = var.name }, var.tags)
  }
}
