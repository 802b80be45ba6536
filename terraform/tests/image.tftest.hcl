# An image, tags and a name of one's own, and no waiting.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  name              = "edge"
  secret_parameters = { GROQ_API_KEY = "/edge/groq" }
  tags              = { team = "ml" }
  ami_id            = "ami-0fedcba9876543210"
  wait_for_ready    = false
}

run "plan" {
  command = plan

  assert {
    condition     = aws_instance.gateway.ami == "ami-0fedcba9876543210" && length(data.aws_ssm_parameter.amazon_linux) == 0
    error_message = "not the image that was asked for"
  }
  assert {
    condition     = length(aws_ssm_association.ready) == 0
    error_message = "it waits all the same"
  }
  assert {
    condition     = aws_ssm_parameter.settings.name == "/edge/settings" && startswith(aws_cloudwatch_metric_alarm.instance["cpu"].alarm_name, "edge-") && local.namespace == "Bifrost/edge"
    error_message = "a name that two deployments would share"
  }
}

run "apply" {
  command = apply

  assert {
    condition     = length(local.user_data) * 3 / 4 < 12288
    error_message = "the user data come near their limit of 16 KB"
  }
}
