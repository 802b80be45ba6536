# A gateway for OpenAI, built on the instance, reached through a tunnel. Put the key into SSM first:
#
#   aws ssm put-parameter --name /bifrost/openai --type SecureString --value "$OPENAI_API_KEY"
module "bifrost" {
  source = "../.."

  region            = "us-east-1"
  secret_parameters = { OPENAI_API_KEY = "/bifrost/openai" }
}

output "dashboard_command" {
  description = "Opens the live dashboard."
  value       = module.bifrost.dashboard_command
}

output "port_forward_command" {
  description = "Brings the API to 127.0.0.1:8080."
  value       = module.bifrost.port_forward_command
}
