"""The blobs port over anything that speaks S3."""
