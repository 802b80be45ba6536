# What tells that the instance is ill, too small, or costs more than it should. And a page to look at.
locals {
  namespace = "Bifrost/${var.name}"
  # Mbit/s that an instance may move for ever, from AWS's table; others get no alarm on it.
  network_mbps = lookup({
    "t3.small"       = 128, "t3.medium" = 256, "t3.large" = 512, "t3.xlarge" = 1024, "t3.2xlarge" = 2048,
    "t3a.small"      = 128, "t3a.medium" = 256, "t3a.large" = 512, "t3a.xlarge" = 1024, "t3a.2xlarge" = 2048,
    "c7i-flex.large" = 390, "m7i-flex.large" = 390, "c7i.large" = 781, "c6i.large" = 781, "m6i.large" = 781,
  }, var.instance_type, null)
  # Percent of each processor that earns as much credit as it spends.
  baseline_percent = lookup({ small = 20, medium = 20, large = 30, xlarge = 40 }, split(".", var.instance_type)[1], 40)

  ec2_alarms = merge(
    {
      reachable = {
        about  = "The instance can't be reached, or is not there"
        metric = "StatusCheckFailed", statistic = "Maximum", threshold = 1, period = 60, periods = 3, missing = "breaching"
      }
      hardware = {
        about  = "The hardware below the instance has failed; it is moved to other hardware"
        metric = "StatusCheckFailed_System", statistic = "Maximum", threshold = 1, period = 60, periods = 2, missing = "notBreaching"
      }
    },
    !local.is_burstable ? {} : {
      cpu = {
        about  = "The instance lives on its CPU credits: more than ${local.baseline_percent} % for half an hour"
        metric = "CPUUtilization", statistic = "Average", threshold = local.baseline_percent, period = 300, periods = 6, missing = "notBreaching"
      }
    },
    !(local.is_burstable && var.cpu_credits == "unlimited") ? {} : {
      surplus = {
        about  = "A quarter of a day's surplus CPU credits is spent: soon they cost $0.05 per vCPU and hour"
        metric = "CPUSurplusCreditBalance", statistic = "Maximum", threshold = 144, period = 300, periods = 1, missing = "notBreaching"
      }
      charged = {
        about  = "Surplus CPU credits are being paid for"
        metric = "CPUSurplusCreditsCharged", statistic = "Maximum", threshold = 0.01, period = 300, periods = 1, missing = "notBreaching"
      }
    },
    local.network_mbps == null ? {} : {
      for direction in ["In", "Out"] : "network-${lower(direction)}" => {
        about  = "80 % of the ${coalesce(local.network_mbps, 0)} Mbit/s that the instance may move for ever"
        metric = "Network${direction}", statistic = "Sum", threshold = coalesce(local.network_mbps, 0) * 1000000 / 8 * 300 * 0.8, period = 300, periods = 3, missing = "notBreaching"
      }
    },
  )
  # The limits of the benchmark page for a t3.medium, as in the dashboard on the instance.
  gateway_alarms = !var.threshold_alarms ? {} : {
    queue-wait = { about = "Requests wait longer than 75 µs for their turn", metric = "QueueWait", threshold = 75, missing = "notBreaching" }
    load       = { about = "4,000 requests a second", metric = "Load", threshold = 4000, missing = "notBreaching" }
    memory     = { about = "75 % of the memory, or the gateway does not run", metric = "Memory", threshold = 75, missing = "breaching" }
  }
}

resource "aws_cloudwatch_metric_alarm" "instance" {
  for_each            = local.ec2_alarms
  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.about
  namespace           = "AWS/EC2"
  metric_name         = each.value.metric
  dimensions          = { InstanceId = aws_instance.gateway.id }
  statistic           = each.value.statistic
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.threshold
  period              = each.value.period
  evaluation_periods  = each.value.periods
  treat_missing_data  = each.value.missing
  alarm_actions = concat(
    each.key == "hardware" ? ["${local.arn_prefix}:automate:${var.region}:ec2:recover"] : [],
    var.alarm_topic_arns,
  )
  ok_actions = var.alarm_topic_arns
}

# A fresh instance has no credits and takes six hours to earn 144, so this alarm begins its life in alarm.
resource "aws_cloudwatch_metric_alarm" "credits" {
  count               = local.is_burstable && var.cpu_credits == "standard" ? 1 : 0
  alarm_name          = "${var.name}-credits"
  alarm_description   = "Fewer than 144 CPU credits are left: 90 minutes at full load, then the instance slows down"
  namespace           = "AWS/EC2"
  metric_name         = "CPUCreditBalance"
  dimensions          = { InstanceId = aws_instance.gateway.id }
  statistic           = "Minimum"
  comparison_operator = "LessThanThreshold"
  threshold           = 144
  period              = 300
  evaluation_periods  = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "gateway" {
  for_each            = local.gateway_alarms
  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.about
  namespace           = local.namespace
  dimensions          = { InstanceId = aws_instance.gateway.id }
  metric_name         = each.value.metric
  statistic           = "Average"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = 5
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns

  # They stay with the instance before until the new one is ready.
  depends_on = [aws_ssm_association.ready]
}

# Each alarm's limit is a line in its picture. An account's first three dashboards cost nothing.
resource "aws_cloudwatch_dashboard" "gateway" {
  dashboard_name = var.name
  dashboard_body = jsonencode({
    widgets = [for place, widget in concat(
      [
        {
          title   = "CPU, % of all processors"
          metrics = [["AWS/EC2", "CPUUtilization", "InstanceId", aws_instance.gateway.id]]
          limit   = local.is_burstable ? local.baseline_percent : null
        },
        { title = "Network, bytes a minute", metrics = [for direction in ["In", "Out"] : ["AWS/EC2", "Network${direction}", "InstanceId", aws_instance.gateway.id]] },
      ],
      !local.is_burstable ? [] : [
        { title = "CPU credits", metrics = [for metric in ["CPUCreditBalance", "CPUSurplusCreditBalance", "CPUSurplusCreditsCharged"] : ["AWS/EC2", metric, "InstanceId", aws_instance.gateway.id]] },
      ],
      [for alarm in local.gateway_alarms : {
        title   = { QueueWait = "Queue wait, µs", Load = "Requests a second", Memory = "Memory, %" }[alarm.metric]
        metrics = [[local.namespace, alarm.metric, "InstanceId", aws_instance.gateway.id]]
        limit   = alarm.threshold
      }],
      ) : {
      type   = "metric"
      x      = (place % 2) * 12
      y      = floor(place / 2) * 6
      width  = 12
      height = 6
      properties = {
        title   = widget.title
        metrics = widget.metrics
        region  = var.region
        view    = "timeSeries"
        period  = 60
        stat    = "Average"
        annotations = {
          horizontal = [for limit in [try(widget.limit, null)] : { label = "Alarm", value = limit } if limit != null]
        }
      }
    }]
  })
}
