# The gateway's settings, and where its secrets are: one parameter, which `apply` changes in place.
resource "aws_ssm_parameter" "settings" {
  # checkov:skip=CKV2_AWS_34:It holds no secret, only the names of those that do: a validation refuses keys in it
  # checkov:skip=CKV_AWS_337:It holds no secret, so no key has to be paid for
  name        = local.settings_parameter
  description = "Settings of the Bifrost gateway; put in force by the output reload_command"
  type        = "String"
  value = jsonencode({
    settings  = local.settings
    variables = local.secret_variables
    files     = local.secret_files
  })

  lifecycle {
    precondition {
      condition     = length(var.secret_parameters) > 0 || length(try(var.settings.providers, {})) > 0
      error_message = "The gateway has no provider: name a key in secret_parameters, such as OPENAI_API_KEY, or set settings.providers."
    }
  }
}
