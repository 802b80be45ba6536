# What to do next, each as a line to paste.
locals {
  session = "aws ssm start-session --region ${var.region} --target ${aws_instance.gateway.id}"
  run     = "${local.session} --document-name AWS-StartInteractiveCommand"
  # Of the instance in us-east-1, 730 hours a month, on demand. Others are not estimated.
  hourly_usd = lookup({
    "t3.small"   = 0.0208, "t3.medium" = 0.0416, "t3.large" = 0.0832, "t3.xlarge" = 0.1664,
    "t3a.medium" = 0.0376, "c7i-flex.large" = 0.0848, "m6i.large" = 0.096, "m7i-flex.large" = 0.0958,
  }, var.instance_type, null)
  alarms_usd = 0.1 * (length(local.ec2_alarms) + length(local.gateway_alarms) + length(aws_cloudwatch_metric_alarm.credits))
  extras_usd = (
    (var.public_address ? 3.65 : 0) + 0.08 * var.root_volume_gb + 2.1 + local.alarms_usd + (var.threshold_alarms ? 0.9 : 0)
  )
  # Credits: AWS's table. One is a minute of one vCPU.
  credits = lookup({
    small = { earned = 24, most = 576 }, medium = { earned = 24, most = 576 },
    large = { earned = 36, most = 864 }, xlarge = { earned = 96, most = 2304 }, "2xlarge" = { earned = 192, most = 4608 },
  }, split(".", var.instance_type)[1], null)
  vcpus = lookup({ xlarge = 4, "2xlarge" = 8 }, split(".", var.instance_type)[1], 2)
}

output "endpoint" {
  description = "Base URL for OpenAI clients: the instance's own, or the near end of the tunnel while no CIDR is open."
  value = local.is_open ? "${local.scheme}://${var.public_address ? aws_eip.gateway[0].public_ip : aws_instance.gateway.private_ip}:${var.port}/v1" : (
    "${local.scheme}://127.0.0.1:${var.port}/v1"
  )
}

output "public_ip" {
  description = "The address that providers see. It stays when the instance is replaced."
  value       = one(aws_eip.gateway[*].public_ip)
}

output "instance_id" {
  description = "The instance that serves."
  value       = aws_instance.gateway.id
}

output "dashboard_command" {
  description = "Opens the live dashboard on the instance. Takes the AWS CLI with its Session Manager plugin, and no open port."
  value       = "${local.run} --parameters command=bifrost-dashboard"
}

output "port_forward_command" {
  description = "Brings the API to this machine, at the same port."
  value       = "${local.session} --document-name AWS-StartPortForwardingSession --parameters portNumber=${var.port},localPortNumber=${var.port}"
}

output "wait_command" {
  description = "Waits for the end of the first boot and says how it went."
  value       = "${local.run} --parameters '{\"command\":[\"sudo cloud-init status --wait; cat /var/lib/bifrost/boot-state\"]}'"
}

output "logs_command" {
  description = "Follows the log of the boot, and the gateway's."
  value       = "${local.run} --parameters '{\"command\":[\"sudo tail -n 50 /var/log/bifrost-boot.log; sudo journalctl --unit bifrost --lines 100 --follow\"]}'"
}

output "reload_command" {
  description = "Puts the settings of the last `apply` in force, without a restart."
  value       = "${local.run} --parameters '{\"command\":[\"sudo systemctl reload bifrost; sudo systemctl status --no-pager --full --lines 10 bifrost\"]}'"
}

output "restart_command" {
  description = "Fetches the secrets again, as after a key was rotated, and drains before it starts anew."
  value       = "${local.run} --parameters '{\"command\":[\"sudo systemctl restart bifrost; sudo systemctl status --no-pager --full --lines 10 bifrost\"]}'"
}

output "dashboard_url" {
  description = "The dashboard in CloudWatch."
  value       = "https://${var.region}.console.aws.amazon.com/cloudwatch/home?region=${var.region}#dashboards/dashboard/${var.name}"
}

output "monthly_cost" {
  description = "An estimate in US dollars by the prices of us-east-1, without traffic and surplus credits."
  value = local.hourly_usd == null ? format("about $%.0f and the instance, whose price is not known here", local.extras_usd) : (
    format("about $%.0f: instance $%.1f; address, volume, detailed monitoring and alarms $%.1f", coalesce(local.hourly_usd, 0) * 730 + local.extras_usd, coalesce(local.hourly_usd, 0) * 730, local.extras_usd)
  )
}

output "credit_runway" {
  description = "How long the instance can be busy beyond its baseline."
  value = !local.is_burstable || local.credits == null ? "no CPU credits are known of for ${var.instance_type}" : format(
    "earns %d credits an hour up to %d: for ever at %d %% CPU, %.0f hours at 100 %% from a full balance; then %s",
    local.credits.earned, local.credits.most, local.baseline_percent,
    local.credits.most / (60 * local.vcpus - local.credits.earned),
    var.cpu_credits == "unlimited" ? "$0.05 per vCPU and hour" : "it slows down to its baseline",
  )
}
