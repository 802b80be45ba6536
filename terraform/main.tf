# The instance, and the address that outlives it.
data "aws_ssm_parameter" "amazon_linux" {
  count = var.ami_id == null ? 1 : 0
  name  = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
}

locals {
  # The boot script's only input. A line each, NAME='value'; none of the values holds a quote.
  boot_facts = merge(
    {
      REGION             = var.region
      DELIVERY           = local.delivery
      SETTINGS_PARAMETER = local.settings_parameter
      NAMESPACE          = local.namespace
    },
    local.delivery != "source" ? {} : {
      RUSTUP_URL    = var.rustup_url
      BUNDLE_URI    = "s3://${aws_s3_bucket.artifacts["artifacts"].id}/${aws_s3_object.source["artifacts"].key}"
      BUNDLE_SHA256 = sha256(local.source_bundle)
    },
    local.delivery != "binary" ? {} : {
      GATEWAY_URI    = "s3://${aws_s3_bucket.artifacts["artifacts"].id}/${aws_s3_object.program["bifrost-gateway"].key}"
      GATEWAY_SHA256 = local.digests["bifrost-gateway"]
      MONITOR_URI    = "s3://${aws_s3_bucket.artifacts["artifacts"].id}/${aws_s3_object.program["bifrost-monitor"].key}"
      MONITOR_SHA256 = local.digests["bifrost-monitor"]
    },
    local.delivery != "release" ? {} : {
      RELEASE_URL    = var.release.url
      RELEASE_SHA256 = var.release.sha256
    },
  )

  files = {
    "/etc/bifrost/boot.env" = {
      mode = "0644", text = join("", [for name, value in local.boot_facts : "${name}='${value}'\n"])
    }
    "/etc/sysctl.d/90-bifrost.conf"               = { mode = "0644", text = file("${path.module}/templates/sysctl.conf") }
    "/etc/systemd/system/bifrost.service"         = { mode = "0644", text = file("${path.module}/templates/bifrost.service") }
    "/etc/systemd/journald.conf.d/bifrost.conf"   = { mode = "0644", text = file("${path.module}/templates/journald.conf") }
    "/etc/systemd/system/bifrost-boot.service"    = { mode = "0644", text = file("${path.module}/templates/bifrost-boot.service") }
    "/etc/systemd/system/bifrost-metrics.service" = { mode = "0644", text = file("${path.module}/templates/bifrost-metrics.service") }
    "/etc/systemd/system/bifrost-metrics.timer"   = { mode = "0644", text = file("${path.module}/templates/bifrost-metrics.timer") }
    "/usr/local/lib/bifrost/boot"                 = { mode = "0755", text = file("${path.module}/templates/boot.sh") }
    "/usr/local/lib/bifrost/fetch-settings"       = { mode = "0755", text = file("${path.module}/templates/fetch_settings.py") }
    "/usr/local/lib/bifrost/publish-metrics"      = { mode = "0755", text = file("${path.module}/templates/publish_metrics.py") }
    "/usr/local/lib/bifrost/nsswitch.conf"        = { mode = "0644", text = file("${path.module}/templates/nsswitch.conf") }
    "/usr/local/bin/bifrost-dashboard"            = { mode = "0755", text = file("${path.module}/templates/dashboard.sh") }
  }
  cloud_config = yamlencode({
    write_files = [for path, content in local.files : {
      path        = path
      permissions = content.mode
      content     = content.text
    }]
    # By a unit, which waits for its end as a command would, and comes again after a reboot.
    runcmd = [["systemctl", "enable", "--now", "bifrost-boot.service"]]
  })
  user_data = base64gzip("#cloud-config\n${local.cloud_config}")
}

resource "aws_instance" "gateway" {
  # checkov:skip=CKV_AWS_88:It needs an address to reach providers; a NAT gateway costs as much as the instance, and no port is open by default
  ami                         = var.ami_id != null ? var.ami_id : nonsensitive(data.aws_ssm_parameter.amazon_linux[0].value)
  instance_type               = var.instance_type
  subnet_id                   = local.subnet_id
  vpc_security_group_ids      = [aws_security_group.gateway.id]
  iam_instance_profile        = aws_iam_instance_profile.gateway.name
  associate_public_ip_address = var.public_address
  monitoring                  = true
  ebs_optimized               = true
  user_data_base64            = local.user_data
  user_data_replace_on_change = true

  dynamic "credit_specification" {
    for_each = local.is_burstable ? [var.cpu_credits] : []
    content {
      cpu_credits = credit_specification.value
    }
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = var.root_volume_gb
    encrypted   = true
  }

  # The gateway reads this one, since an instance's metadata do not tell its credit mode.
  tags = { for tag, value in { bifrost-credit-mode = var.cpu_credits } : tag => value if local.is_burstable }

  lifecycle {
    # The address stays with the old instance until the new one is ready.
    create_before_destroy = true
    # A newer image alone replaces nothing: `terraform apply -replace=aws_instance.gateway` takes it when you say so.
    ignore_changes = [ami]

    precondition {
      condition     = length(local.user_data) * 3 / 4 <= 16384
      error_message = "The user data are larger than the 16 KB that EC2 allows."
    }
  }

  depends_on = [aws_ssm_parameter.settings, aws_iam_role_policy.gateway, aws_iam_role_policy.session_manager, aws_route.out, aws_route_table_association.public]
}

resource "aws_eip" "gateway" {
  count    = var.public_address ? 1 : 0
  domain   = "vpc"
  instance = aws_instance.gateway.id

  depends_on = [aws_ssm_association.ready, aws_internet_gateway.out]
}
