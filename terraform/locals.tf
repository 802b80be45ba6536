# What follows from the variables.
locals {
  is_open      = length(var.allowed_cidr_blocks) > 0
  makes_vpc    = var.subnet_id == null
  is_burstable = can(regex("^t3a?\\.", var.instance_type))
  subnet_id    = local.makes_vpc ? aws_subnet.public[0].id : var.subnet_id
  vpc_id       = local.makes_vpc ? aws_vpc.own[0].id : data.aws_subnet.given[0].vpc_id
  arn_prefix   = "arn:${data.aws_partition.current.partition}"
  account_id   = data.aws_caller_identity.current.account_id

  # Files that the instance fetches into memory at each start, by the names that they have there.
  secret_files = merge(
    var.tls == null ? {} : {
      "tls-certificate.pem" = var.tls.certificate_parameter
      "tls-key.pem"         = var.tls.key_parameter
    },
  )
  secret_variables = merge(
    var.secret_parameters,
    { for variable, parameter in { BIFROST_CLIENT_KEYS = var.client_keys_parameter } : variable => parameter if parameter != null },
  )
  secret_names = toset(concat(values(local.secret_files), values(local.secret_variables)))

  settings_parameter = "/${var.name}/settings"
  secrets_directory  = "/run/bifrost-secrets"
  # Beyond the instance nobody is served without client keys. `[::]` takes IPv4, too.
  listens_on = "${!local.is_open ? "127.0.0.1" : anytrue([for block in var.allowed_cidr_blocks : strcontains(block, ":")]) ? "[::]" : "0.0.0.0"}:${var.port}"
  settings = merge(var.settings, {
    drain_timeout = "${var.drain_timeout_seconds}s"
    server = merge(
      try(var.settings.server, {}),
      { listen = local.listens_on },
      { for setting, files in {
        tls = {
          certificate = "${local.secrets_directory}/tls-certificate.pem"
          key         = "${local.secrets_directory}/tls-key.pem"
        }
      } : setting => files if var.tls != null },
    )
    # The group's members may read it, so that the monitor takes no privilege.
    telemetry = merge(try(var.settings.telemetry, {}), { segment = "/run/bifrost", readers = "group" })
  })
  scheme = var.tls == null ? "http" : "https"
}

data "aws_partition" "current" {}

data "aws_caller_identity" "current" {}
