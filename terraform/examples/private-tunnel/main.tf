# In a private subnet of yours, without a public address: everything goes through Session Manager. The subnet needs a NAT
# gateway to reach providers.
module "bifrost" {
  source = "../.."

  name           = "bifrost-private"
  subnet_id      = var.subnet_id
  public_address = false

  secret_parameters = { OPENAI_API_KEY = "/bifrost/openai" }
  settings          = { log = { format = "json", access = true } }
}

variable "subnet_id" {
  description = "The private subnet."
  type        = string
}

output "port_forward_command" {
  description = "Brings the API to 127.0.0.1:8080."
  value       = module.bifrost.port_forward_command
}
