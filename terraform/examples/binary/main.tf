# Programs that were built here, on an instance that serves a network of yours over TLS, to clients that have a key.
# Linked statically they start whatever the image's glibc is:
#
#   RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target x86_64-unknown-linux-gnu
module "bifrost" {
  source = "../.."

  name             = "bifrost-open"
  binary_directory = var.binary_directory

  secret_parameters = {
    OPENAI_API_KEY    = "/bifrost/openai"
    ANTHROPIC_API_KEY = "/bifrost/anthropic"
  }

  allowed_cidr_blocks   = ["203.0.113.0/24"]
  client_keys_parameter = "/bifrost/clients"
  tls = {
    certificate_parameter = "/bifrost/certificate"
    key_parameter         = "/bifrost/key"
  }

  threshold_alarms = true
  alarm_topic_arns = var.alarm_topic_arns
}

variable "binary_directory" {
  description = "Where bifrost-gateway and bifrost-monitor are."
  type        = string
  default     = "../../../target/x86_64-unknown-linux-gnu/release"
}

variable "alarm_topic_arns" {
  description = "Who hears of alarms."
  type        = list(string)
  default     = []
}

output "endpoint" {
  description = "Base URL for clients."
  value       = module.bifrost.endpoint
}
