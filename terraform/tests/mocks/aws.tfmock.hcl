# What AWS would have said.

mock_data "aws_partition" {
  defaults = { partition = "aws" }
}

mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}

mock_data "aws_availability_zones" {
  defaults = { names = ["us-east-1a", "us-east-1b"] }
}

# The first zone lacks it.
mock_data "aws_ec2_instance_type_offerings" {
  defaults = { locations = ["us-east-1b", "us-east-1c"] }
}

mock_data "aws_ssm_parameter" {
  defaults = { value = "ami-0123456789abcdef0" }
}

mock_data "aws_subnet" {
  defaults = { vpc_id = "vpc-0123456789abcdef0" }
}

mock_data "aws_iam_policy_document" {
  defaults = { json = "{}" }
}
