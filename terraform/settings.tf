# The gateway's settings, and where its secrets are: one parameter, which `apply` changes in place.
locals {
  settings_document = jsonencode({
    settings  = local.settings
    variables = local.secret_variables
    files     = local.secret_files
    # What the boot script and the metrics' timer go by.
    port    = var.port
    scheme  = local.scheme
    publish = var.threshold_alarms
  })
  # In bytes, which SSM counts; `length` counts characters.
  settings_bytes = length(base64encode(local.settings_document)) * 3 / 4 - length(regexall("=", base64encode(local.settings_document)))
}

resource "aws_ssm_parameter" "settings" {
  # checkov:skip=CKV2_AWS_34:It holds no secret, only the names of those that do: a validation refuses keys in it
  # checkov:skip=CKV_AWS_337:It holds no secret, so no key has to be paid for
  name        = local.settings_parameter
  description = "Settings of the Bifrost gateway; put in force by the output reload_command"
  type        = "String"
  value       = local.settings_document

  lifecycle {
    precondition {
      condition     = length(var.secret_parameters) > 0 || length(try(var.settings.providers, {})) > 0
      error_message = "The gateway has no provider: name a key in secret_parameters, such as OPENAI_API_KEY, or set settings.providers."
    }

    precondition {
      condition     = local.settings_bytes <= 4096
      error_message = "The settings and the names of secrets are ${local.settings_bytes} bytes of JSON, and an SSM parameter holds 4,096: shorten settings, or the names of parameters."
    }
  }
}
