# How the programs get onto the instance: as source that is built there, as binaries, or from a release.
#
# An object's key holds its digest: whatever changes the programs changes the user data, and so replaces the instance.
locals {
  delivery = var.release != null ? "release" : var.binary_directory != null ? "binary" : "source"

  # What cargo needs, and no more. One JSON object, path to base64: that takes no program on the machine that runs
  # Terraform, be it Windows. The two manifests' other targets have to be there for cargo to read the manifests.
  repository = abspath("${path.module}/..")
  source_files = local.delivery != "source" ? [] : sort(distinct(flatten([
    for pattern in [
      "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml",
      "{gateway,monitor,shared}/Cargo.toml", "{gateway,monitor,shared}/src/**",
      "gateway/benches/*.rs", "gateway/tests/soak/*.rs",
    ] : [for file in fileset(local.repository, pattern) : file if !endswith(file, ".snap")]
  ])))
  source_bundle = jsonencode({ for file in local.source_files : file => filebase64("${local.repository}/${file}") })

  programs = ["bifrost-gateway", "bifrost-monitor"]
  digests  = local.delivery == "binary" ? { for program in local.programs : program => filesha256("${var.binary_directory}/${program}") } : {}
}

resource "aws_s3_bucket" "artifacts" {
  # checkov:skip=CKV_AWS_18:An access log of a bucket that one instance reads once is a second bucket to watch
  # checkov:skip=CKV_AWS_144:What is in it can be made again from the checkout
  # checkov:skip=CKV_AWS_145:Programs are no secret: S3's own encryption will do
  # checkov:skip=CKV2_AWS_62:Nobody has to hear of uploads, which Terraform alone makes
  for_each      = local.delivery == "release" ? [] : toset(["artifacts"])
  bucket_prefix = "${var.name}-artifacts-"
  force_destroy = true
}

resource "aws_s3_bucket_public_access_block" "artifacts" {
  for_each                = aws_s3_bucket.artifacts
  bucket                  = each.value.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "artifacts" {
  for_each = aws_s3_bucket.artifacts
  bucket   = each.value.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "artifacts" {
  for_each = aws_s3_bucket.artifacts
  bucket   = each.value.id
  rule {
    id     = "forget-old-programs"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = 7
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_s3_object" "source" {
  for_each       = local.delivery == "source" ? aws_s3_bucket.artifacts : {}
  bucket         = each.value.id
  key            = "source/${sha256(local.source_bundle)}.json.gz"
  content_base64 = base64gzip(local.source_bundle)

  lifecycle {
    create_before_destroy = true
    precondition {
      condition     = contains(local.source_files, "Cargo.lock") && length(local.source_files) > 50
      error_message = "There is no checkout around this module to build the gateway from: set binary_directory or release."
    }
  }
}

resource "aws_s3_object" "program" {
  for_each = local.digests
  bucket   = aws_s3_bucket.artifacts["artifacts"].id
  key      = "${each.key}/${each.value}"
  source   = "${var.binary_directory}/${each.key}"

  lifecycle {
    create_before_destroy = true
  }
}
