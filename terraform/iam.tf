# What the instance may do: be reached by Session Manager, and read exactly what it needs.
data "aws_iam_policy_document" "is_instance" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "gateway" {
  name_prefix        = "${var.name}-"
  description        = "The Bifrost gateway's instance"
  assume_role_policy = data.aws_iam_policy_document.is_instance.json
}

data "aws_iam_policy_document" "gateway" {
  statement {
    sid     = "Parameters"
    actions = ["ssm:GetParameters"]
    # By name, so that a change of the settings leaves the policy alone.
    resources = [for name in setunion([local.settings_parameter], local.secret_names) :
      "${local.arn_prefix}:ssm:${var.region}:${local.account_id}:parameter${name}"
    ]
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]
    content {
      sid       = "Decrypt"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["ssm.${var.region}.amazonaws.com"]
      }
    }
  }

  dynamic "statement" {
    for_each = aws_s3_bucket.artifacts
    content {
      sid       = "Artifacts"
      actions   = ["s3:GetObject"]
      resources = ["${statement.value.arn}/*"]
    }
  }

  dynamic "statement" {
    for_each = var.threshold_alarms ? [1] : []
    content {
      sid       = "Metrics"
      actions   = ["cloudwatch:PutMetricData"]
      resources = ["*"] # this action knows no resources: the namespace narrows it
      condition {
        test     = "StringEquals"
        variable = "cloudwatch:namespace"
        values   = [local.namespace]
      }
    }
  }
}

resource "aws_iam_role_policy" "gateway" {
  name   = "gateway"
  role   = aws_iam_role.gateway.id
  policy = data.aws_iam_policy_document.gateway.json
}

# What the agent of Systems Manager asks for, of AWS's AmazonSSMManagedInstanceCore. Not that policy itself: it lets the
# instance read every parameter of the account, the secrets of others among them.
data "aws_iam_policy_document" "session_manager" {
  # checkov:skip=CKV_AWS_356:The agent's actions know no resource that could be named before there is an instance
  # checkov:skip=CKV_AWS_111:The same
  statement {
    sid = "Agent"
    actions = [
      "ssm:UpdateInstanceInformation",
      "ssm:ListAssociations", "ssm:ListInstanceAssociations", "ssm:DescribeAssociation",
      "ssm:GetDocument", "ssm:DescribeDocument", "ssm:GetManifest",
      "ssm:UpdateAssociationStatus", "ssm:UpdateInstanceAssociationStatus", "ssm:PutComplianceItems",
    ]
    resources = ["*"]
  }

  statement {
    sid = "Sessions"
    actions = [
      "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }

  statement {
    sid = "Commands"
    actions = [
      "ec2messages:AcknowledgeMessage", "ec2messages:DeleteMessage", "ec2messages:FailMessage",
      "ec2messages:GetEndpoint", "ec2messages:GetMessages", "ec2messages:SendReply",
    ]
    resources = ["*"]
  }
}

resource "aws_iam_role_policy" "session_manager" {
  name   = "session-manager"
  role   = aws_iam_role.gateway.id
  policy = data.aws_iam_policy_document.session_manager.json
}

resource "aws_iam_instance_profile" "gateway" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.gateway.name
}
