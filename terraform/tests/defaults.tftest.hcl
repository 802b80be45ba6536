# What one gets by naming a key and nothing else.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  secret_parameters = { OPENAI_API_KEY = "/bifrost/openai" }
}

run "plan" {
  command = plan

  assert {
    condition     = aws_instance.gateway.instance_type == "t3.medium"
    error_message = "not a t3.medium"
  }
  assert {
    condition     = aws_instance.gateway.metadata_options[0].http_tokens == "required" && aws_instance.gateway.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "IMDSv1, or IMDS beyond the instance"
  }
  assert {
    condition     = aws_instance.gateway.metadata_options[0].instance_metadata_tags == "enabled" && aws_instance.gateway.tags == tomap({ bifrost-credit-mode = "unlimited" })
    error_message = "the gateway can't read the credit mode"
  }
  assert {
    condition     = aws_instance.gateway.credit_specification[0].cpu_credits == "unlimited"
    error_message = "a fresh t3 without credits would build for a quarter of an hour"
  }
  assert {
    condition     = aws_instance.gateway.root_block_device[0].encrypted && aws_instance.gateway.root_block_device[0].volume_type == "gp3" && aws_instance.gateway.root_block_device[0].volume_size == 16
    error_message = "the volume"
  }
  assert {
    condition     = aws_instance.gateway.user_data_replace_on_change && aws_instance.gateway.monitoring && aws_instance.gateway.ebs_optimized
    error_message = "replacement, detailed monitoring or EBS"
  }
  assert {
    condition     = aws_eip.gateway[0].domain == "vpc"
    error_message = "the address is not of the VPC"
  }
  assert {
    condition     = length(aws_subnet.public) == 1 && !aws_subnet.public[0].map_public_ip_on_launch
    error_message = "the subnet gives addresses to whatever is in it"
  }
  assert {
    condition     = aws_subnet.public[0].availability_zone == "us-east-1b"
    error_message = "a zone that does not have the type"
  }
  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).settings.server == { listen = "127.0.0.1:8080" }
    error_message = "without client keys it must not listen beyond the instance"
  }
  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).variables == { OPENAI_API_KEY = "/bifrost/openai" }
    error_message = "the key's parameter"
  }
  assert {
    condition     = jsondecode(aws_ssm_parameter.settings.value).settings.telemetry == { segment = "/run/bifrost", readers = "group" } && jsondecode(aws_ssm_parameter.settings.value).settings.drain_timeout == "120s"
    error_message = "the segment, its readers or the drain"
  }
  assert {
    condition     = aws_ssm_parameter.settings.type == "String" && aws_ssm_parameter.settings.name == "/bifrost/settings"
    error_message = "the settings' parameter"
  }
  assert {
    condition     = aws_ssm_association.ready[0].wait_for_success_timeout_seconds == 2700
    error_message = "apply does not wait for the gateway"
  }
  assert {
    condition     = toset(keys(aws_cloudwatch_metric_alarm.instance)) == toset(["reachable", "hardware", "cpu", "surplus", "charged", "network-in", "network-out"])
    error_message = "alarms of an unlimited t3.medium"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.instance["network-out"].threshold == 7680000000 && aws_cloudwatch_metric_alarm.instance["cpu"].threshold == 20
    error_message = "256 Mbit/s for five minutes, and the baseline of 20 %"
  }
  assert {
    condition     = length(aws_cloudwatch_metric_alarm.credits) == 0 && length(aws_cloudwatch_metric_alarm.gateway) == 0
    error_message = "alarms that cost and were not asked for"
  }
  assert {
    condition     = length([for rule in aws_security_group.gateway.ingress : rule]) == 0
    error_message = "a port is open"
  }
  assert {
    condition     = output.monthly_cost == "about $38: instance $30.4; address, volume, detailed monitoring and alarms $7.7"
    error_message = output.monthly_cost
  }
  assert {
    condition     = output.credit_runway == "earns 24 credits an hour up to 576: for ever at 20 % CPU, 6 hours at 100 % from a full balance; then $0.05 per vCPU and hour"
    error_message = output.credit_runway
  }
}

run "apply" {
  command = apply

  assert {
    condition     = output.endpoint == "http://127.0.0.1:8080/v1"
    error_message = output.endpoint
  }
  assert {
    condition     = output.dashboard_command == "aws ssm start-session --region us-east-1 --target ${output.instance_id} --document-name AWS-StartInteractiveCommand --parameters command=bifrost-dashboard"
    error_message = output.dashboard_command
  }
  assert {
    condition     = endswith(output.port_forward_command, "--document-name AWS-StartPortForwardingSession --parameters portNumber=8080,localPortNumber=8080")
    error_message = output.port_forward_command
  }
  assert {
    condition     = strcontains(output.wait_command, "cloud-init status --wait") && strcontains(output.reload_command, "systemctl reload bifrost") && strcontains(output.restart_command, "systemctl restart bifrost") && strcontains(output.logs_command, "journalctl --unit bifrost")
    error_message = "a command"
  }
  assert {
    condition     = aws_eip.gateway[0].instance == aws_instance.gateway.id && aws_eip.gateway[0].public_ip == output.public_ip
    error_message = "the address is not the instance's"
  }
  assert {
    condition     = strcontains(output.dashboard_url, "#dashboards/dashboard/bifrost")
    error_message = output.dashboard_url
  }
}
