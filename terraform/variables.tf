# What can be chosen. Each is checked here, so that a mistake is told before anything is made.

# --- Where and what ---------------------------------------------------------------------------------------------------

variable "region" {
  description = "AWS region, such as `eu-central-1`."
  type        = string
  default     = "us-east-1"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region has to be an AWS region such as eu-central-1."
  }
}

variable "name" {
  description = "Begins the names of everything that is made, so that several can live in one account."
  type        = string
  default     = "bifrost"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,18}[a-z0-9]$", var.name))
    error_message = "name has to be 2 to 20 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "tags" {
  description = "Tags for everything that is made, beside `Project` and `Name`."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key, _ in var.tags : !startswith(lower(key), "aws:") && key != "bifrost-credit-mode"])
    error_message = "tags may neither begin with aws: nor be bifrost-credit-mode, which says what cpu_credits is."
  }

  validation {
    # What an instance that shows its tags in its metadata can be started with.
    condition     = alltrue([for key, _ in var.tags : can(regex("^[A-Za-z0-9+=.,_:@-]{1,128}$", key))])
    error_message = "tags may be named with letters, digits and + - = . , _ : @ only: the instance shows them in its metadata."
  }
}

variable "instance_type" {
  description = "A size with x86_64 processors. The limits of the dashboard are those of a `t3.medium`."
  type        = string
  default     = "t3.medium"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.([0-9]*(nano|micro|small|medium|large|xlarge)|metal)$", var.instance_type))
    error_message = "instance_type has to be an EC2 instance type such as t3.medium."
  }

  validation {
    condition     = !can(regex("^(a1|[a-z]+[0-9]+g[a-z]*)\\.", var.instance_type))
    error_message = "instance_type names an arm64 instance, and there is no build for it: choose an x86_64 type such as t3.medium."
  }

  validation {
    # Those are not of the Nitro system: they can't be EBS-optimised at will, and credits of a t2 are others. Nor is a Mac.
    condition     = !can(regex("^([tm]1|t2|m[2-4]|c[134]|cc2|cr1|r[34]|x1e?|i2|d2|h1|hs1|g[23]s?|p[23]|f1|mac[0-9].*)\\.", var.instance_type))
    error_message = "instance_type is of a generation before Nitro, or a Mac: choose a newer one, such as t3.medium."
  }

  validation {
    condition     = !can(regex("\\.(nano|micro)$", var.instance_type))
    error_message = "instance_type has less than 2 GB of memory, in which the gateway can't be built or carry its load: choose small or larger."
  }
}

variable "cpu_credits" {
  description = "What happens when a burstable instance has spent its CPU credits: `unlimited` pays for more, `standard` slows down to the baseline."
  type        = string
  default     = "unlimited"

  validation {
    condition     = contains(["standard", "unlimited"], var.cpu_credits)
    error_message = "cpu_credits has to be standard or unlimited."
  }
}

variable "ami_id" {
  description = "An Amazon Linux 2023 image for x86_64. `null` is the newest. It is used when an instance is made: another one alone replaces nothing."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-([0-9a-f]{8}|[0-9a-f]{17})$", var.ami_id))
    error_message = "ami_id has to be an image such as ami-0123456789abcdef0."
  }
}

variable "root_volume_gb" {
  description = "Size of the encrypted gp3 root volume."
  type        = number
  default     = 16

  validation {
    condition     = var.root_volume_gb >= 8 && var.root_volume_gb <= 1024 && floor(var.root_volume_gb) == var.root_volume_gb
    error_message = "root_volume_gb has to be a whole number from 8 to 1024: the image takes 2, a build of the gateway 4."
  }
}

# --- Network ----------------------------------------------------------------------------------------------------------

variable "vpc_cidr" {
  description = "Addresses of the VPC that is made. Of no effect with `subnet_id`."
  type        = string
  default     = "10.42.0.0/24"

  validation {
    condition     = can(cidrnetmask(var.vpc_cidr)) && try(tonumber(split("/", var.vpc_cidr)[1]) >= 16 && tonumber(split("/", var.vpc_cidr)[1]) <= 27, false)
    error_message = "vpc_cidr has to be an IPv4 range from /16 to /27, such as 10.42.0.0/24."
  }
}

variable "subnet_id" {
  description = "A subnet of yours to put the instance into. It needs a way out to the internet. `null` makes a VPC with one public subnet."
  type        = string
  default     = null

  validation {
    condition     = var.subnet_id == null || can(regex("^subnet-([0-9a-f]{8}|[0-9a-f]{17})$", var.subnet_id))
    error_message = "subnet_id has to be a subnet such as subnet-0123456789abcdef0."
  }
}

variable "public_address" {
  description = "Whether the instance has an Elastic IP. Without one it needs `subnet_id`, whose subnet has a NAT gateway or endpoints."
  type        = bool
  default     = true

  validation {
    condition     = var.public_address || var.subnet_id != null
    error_message = "public_address = false needs subnet_id: in the VPC that is made, an instance without an address reaches nothing."
  }
}

variable "port" {
  description = "Port of the API, below 10240."
  type        = number
  default     = 8080

  validation {
    # From 10240 on the kernel gives ports to outgoing connections: see templates/sysctl.conf.
    condition     = var.port >= 1024 && var.port < 10240 && floor(var.port) == var.port && var.port != 8081
    error_message = "port has to be from 1024 to 10239, since the gateway has no privilege and higher ones are for its own connections, and not 8081, which is its admin listener's."
  }
}

variable "allowed_cidr_blocks" {
  description = "IPv4 ranges that may reach the API, and with `subnet_id` IPv6 ones. None by default: the tunnel needs no open port. Takes `client_keys_parameter` and `tls`."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for block in var.allowed_cidr_blocks : can(cidrhost(block, 0))])
    error_message = "allowed_cidr_blocks has to be a list of ranges such as 203.0.113.0/24 or 2001:db8::/48."
  }

  validation {
    # By its width, since 0.0.0.0/0 can be written in other ways: 0.0.0.0/1 and 128.0.0.0/1, ::/0, 0::0/0.
    condition = alltrue([for block in var.allowed_cidr_blocks :
      try(tonumber(split("/", block)[1]) >= (strcontains(block, ":") ? 32 : 8), false)
    ])
    error_message = "allowed_cidr_blocks would open the API to the world: name ranges of /8 or narrower, for IPv6 of /32 or narrower."
  }

  validation {
    condition     = var.subnet_id != null || !anytrue([for block in var.allowed_cidr_blocks : strcontains(block, ":")])
    error_message = "allowed_cidr_blocks has IPv6 ranges, and the VPC that is made has IPv4 only: set subnet_id to one of yours that has both."
  }

  validation {
    condition     = length(var.allowed_cidr_blocks) == 0 || var.client_keys_parameter != null
    error_message = "allowed_cidr_blocks needs client_keys_parameter: without client keys, whoever reaches the gateway spends your providers' keys."
  }

  validation {
    condition     = length(var.allowed_cidr_blocks) == 0 || var.tls != null
    error_message = "allowed_cidr_blocks needs tls: client keys must not cross a network in the clear."
  }
}

variable "egress_ports" {
  description = "TCP ports that the instance may reach: those of the providers. 443 is always among them, since AWS itself is reached there."
  type        = set(number)
  default     = []

  validation {
    condition     = alltrue([for port in var.egress_ports : port >= 1 && port <= 65535 && floor(port) == port])
    error_message = "egress_ports has to be a set of ports from 1 to 65535."
  }
}

# --- Secrets: names, never values ---------------------------------------------------------------------------------------

variable "secret_parameters" {
  description = "Environment variable to the name of the SSM SecureString that holds its value, such as `{ OPENAI_API_KEY = \"/bifrost/openai\" }`."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for variable, _ in var.secret_parameters : can(regex("^[A-Z_][A-Z0-9_]*$", variable))])
    error_message = "secret_parameters has to name environment variables in capitals, such as OPENAI_API_KEY."
  }

  validation {
    condition = alltrue([for variable, _ in var.secret_parameters :
      !can(regex("^(PATH|LD_.*|NOTIFY_SOCKET|WATCHDOG_.*|RUNTIME_DIRECTORY|BIFROST_.*)$", variable))
    ])
    error_message = "secret_parameters must not set PATH, LD_*, systemd's own variables, or BIFROST_*: settings and client_keys_parameter are for those."
  }

  validation {
    condition     = alltrue([for _, parameter in var.secret_parameters : can(regex("^/[A-Za-z0-9_./-]+$", parameter))])
    error_message = "secret_parameters has to name SSM parameters by their whole path, which begins with a slash, such as /bifrost/openai."
  }
}

variable "client_keys_parameter" {
  description = "Name of the SSM SecureString that holds the keys of clients, with commas between them. Without it the API answers on the instance alone."
  type        = string
  default     = null

  validation {
    condition     = var.client_keys_parameter == null || can(regex("^/[A-Za-z0-9_./-]+$", var.client_keys_parameter))
    error_message = "client_keys_parameter has to name an SSM parameter by its whole path, which begins with a slash, such as /bifrost/clients."
  }
}

variable "tls" {
  description = "Names of the SSM SecureStrings that hold the certificate chain and its key, both PEM."
  type = object({
    certificate_parameter = string
    key_parameter         = string
  })
  default = null

  validation {
    condition = var.tls == null || try(
      can(regex("^/[A-Za-z0-9_./-]+$", var.tls.certificate_parameter)) && can(regex("^/[A-Za-z0-9_./-]+$", var.tls.key_parameter)), false
    )
    error_message = "tls has to name two SSM parameters by their whole paths, which begin with a slash, such as /bifrost/certificate."
  }
}

variable "kms_key_arn" {
  description = "The customer managed key that the SecureStrings are encrypted with. `null` is AWS's own, `alias/aws/ssm`."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "kms_key_arn has to be a key's ARN, such as arn:aws:kms:us-east-1:123456789012:key/…; an alias won't do in a policy."
  }
}

# --- Settings of the gateway ----------------------------------------------------------------------------------------------

variable "settings" {
  description = "Settings of the gateway as in its README, such as `{ log = { access = true } }`. A change reaches the instance by `reload_command`."
  type        = any
  default     = {}

  validation {
    condition     = can(keys(var.settings))
    error_message = "settings has to be an object, such as { log = { access = true } }."
  }

  validation {
    # Whatever is here lies in Terraform's state, in plain text. A key may be a text (several with commas), a list, one
    # table, or tables by name; each has to name a variable or a file.
    condition = alltrue(flatten([
      for held in concat(
        [for provider in try(values(var.settings.providers), []) : try(provider.keys, null)],
        [try(var.settings.client_keys, null), try(var.settings.admin_key, null)],
        [try(var.settings.admin.keys, null), try(var.settings.admin.key, null)],
        ) : held == null ? [] : [
        for key in try([tostring(held)], [{ value = held.value }], [{ value_file = held.value_file }], values(held), [for each in held : each], []) : [
          for text in split(",", try(tostring(key), tostring(key.value), can(tostring(key.value_file)) ? "env.FILE" : "?")) : can(regex("^\\s*env\\.[A-Z_][A-Z0-9_]*\\s*$", text))
        ]
      ]
    ]))
    error_message = "settings must not hold keys: put each into an SSM SecureString, name it in secret_parameters, and write env.NAME here."
  }

  validation {
    condition = alltrue(flatten([
      for provider in try(values(var.settings.providers), []) : [
        for header, value in try(provider.headers, {}) : can(regex("^env\\.[A-Z_][A-Z0-9_]*$", value)) if can(regex("auth|key|token|secret|cookie", lower(header)))
      ]
    ]))
    error_message = "settings must not hold keys in headers: write env.NAME there, too, and name it in secret_parameters."
  }

  validation {
    condition = alltrue(flatten([
      for provider in try(values(var.settings.providers), []) : [
        for setting in ["proxy", "base_url"] : !strcontains(try(tostring(provider[setting]), ""), "@")
      ]
    ]))
    error_message = "settings must not hold a password in a proxy or base_url: write env.NAME for the whole address, and name it in secret_parameters."
  }

  validation {
    condition = alltrue([for setting in ["listen", "tls"] : !can(var.settings.server[setting])]) && alltrue([
      !can(var.settings.admin.listen), !can(var.settings.telemetry.segment), !can(var.settings.telemetry.readers),
      !can(var.settings.drain_timeout)
    ])
    error_message = "settings must not set server.listen, server.tls, admin.listen, telemetry.segment, telemetry.readers or drain_timeout: the module does, by port, tls and drain_timeout_seconds."
  }
}

variable "drain_timeout_seconds" {
  description = "How long requests in flight may take when the gateway is asked to stop."
  type        = number
  default     = 120

  validation {
    condition     = var.drain_timeout_seconds >= 1 && var.drain_timeout_seconds <= 600 && floor(var.drain_timeout_seconds) == var.drain_timeout_seconds
    error_message = "drain_timeout_seconds has to be a whole number from 1 to 600, which systemd waits for."
  }
}

# --- Where the programs come from --------------------------------------------------------------------------------------------

variable "binary_directory" {
  description = "Directory that holds `bifrost-gateway` and `bifrost-monitor` for x86_64 Linux, best built with `-C target-feature=+crt-static`. `null` builds them on the instance."
  type        = string
  default     = null

  validation {
    condition = var.binary_directory == null || try(
      fileexists("${var.binary_directory}/bifrost-gateway") && fileexists("${var.binary_directory}/bifrost-monitor"), false
    )
    error_message = "binary_directory has to hold both bifrost-gateway and bifrost-monitor."
  }
}

variable "release" {
  description = "A `.tar.gz` that holds both programs at its top, and its SHA-256."
  type = object({
    url    = string
    sha256 = string
  })
  default = null

  validation {
    condition     = var.release == null || try(can(regex("^https://[^\\s'\"\\\\@]+$", var.release.url)), false)
    error_message = "release.url has to begin with https://, and to hold no password: whoever may look at the instance reads it."
  }

  validation {
    condition     = var.release == null || try(can(regex("^[0-9a-f]{64}$", var.release.sha256)), false)
    error_message = "release.sha256 has to be 64 hexadecimal digits in lower case."
  }

  validation {
    condition     = var.release == null || var.binary_directory == null
    error_message = "release and binary_directory say two things about where the programs come from: set one."
  }
}

variable "rustup_url" {
  description = "Installer of rustup, for a build on an instance whose image has an older Rust than the gateway needs."
  type        = string
  default     = "https://sh.rustup.rs"

  validation {
    condition     = can(regex("^https://[^\\s'\"\\\\]+$", var.rustup_url))
    error_message = "rustup_url has to begin with https://."
  }
}

# --- Watching over it ----------------------------------------------------------------------------------------------------------

variable "wait_for_ready" {
  description = "Whether `apply` waits until the gateway answers, and moves the address only then."
  type        = bool
  default     = true
}

variable "alarm_topic_arns" {
  description = "SNS topics that hear of alarms."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "alarm_topic_arns has to be a list of SNS topics' ARNs."
  }
}

variable "threshold_alarms" {
  description = "Whether the instance publishes queue wait, load and memory once a minute, and alarms watch them. Some $1.20 a month."
  type        = bool
  default     = false
}
