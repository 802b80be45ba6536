# A VPC with one public subnet, unless there is a subnet to use. A NAT gateway would cost as much as the instance.
data "aws_subnet" "given" {
  count = local.makes_vpc ? 0 : 1
  id    = var.subnet_id
}

data "aws_availability_zones" "here" {
  # checkov:skip=CKV_AWS_394:One zone is used, whichever others there are
  state = "available"

  # Local zones don't have every instance type.
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

# Not every zone has every type.
data "aws_ec2_instance_type_offerings" "here" {
  count         = local.makes_vpc ? 1 : 0
  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [var.instance_type]
  }
}

locals {
  zones = !local.makes_vpc ? [] : sort(setintersection(
    data.aws_availability_zones.here.names, data.aws_ec2_instance_type_offerings.here[0].locations
  ))
}

resource "aws_vpc" "own" {
  # checkov:skip=CKV2_AWS_11:Flow logs cost more than the instance at 5,000 requests a second; turn them on where they are read
  count                = local.makes_vpc ? 1 : 0
  cidr_block           = var.vpc_cidr
  enable_dns_hostnames = true
}

# Nobody uses the default group, so it lets nothing through.
resource "aws_default_security_group" "closed" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
}

resource "aws_subnet" "public" {
  count             = local.makes_vpc ? 1 : 0
  vpc_id            = aws_vpc.own[0].id
  cidr_block        = cidrsubnet(var.vpc_cidr, 1, 0)
  availability_zone = try(local.zones[0], null)
  # The instance asks for its address itself.
  map_public_ip_on_launch = false

  lifecycle {
    # Another zone that comes first tomorrow is no reason to move.
    ignore_changes = [availability_zone]

    precondition {
      condition     = length(local.zones) > 0
      error_message = "No zone of ${var.region} has ${var.instance_type}: choose another instance_type or region."
    }
  }
}

resource "aws_internet_gateway" "out" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
}

resource "aws_route_table" "public" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.own[0].id
}

resource "aws_route" "out" {
  count                  = local.makes_vpc ? 1 : 0
  route_table_id         = aws_route_table.public[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.out[0].id
}

resource "aws_route_table_association" "public" {
  count          = local.makes_vpc ? 1 : 0
  subnet_id      = aws_subnet.public[0].id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_security_group" "gateway" {
  name_prefix = "${var.name}-"
  description = "Bifrost gateway"
  vpc_id      = local.vpc_id

  dynamic "ingress" {
    for_each = local.is_open ? [1] : []
    content {
      description      = "The API, over TLS and with client keys"
      protocol         = "tcp"
      from_port        = var.port
      to_port          = var.port
      cidr_blocks      = [for block in var.allowed_cidr_blocks : block if !strcontains(block, ":")]
      ipv6_cidr_blocks = [for block in var.allowed_cidr_blocks : block if strcontains(block, ":")]
    }
  }

  dynamic "egress" {
    for_each = setunion([443], var.egress_ports)
    content {
      description = egress.value == 443 ? "Providers and AWS" : "A provider"
      protocol    = "tcp"
      from_port   = egress.value
      to_port     = egress.value
      cidr_blocks = ["0.0.0.0/0"]
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}
