"""Generated from proto/ by tools/gen.py. Do not edit."""
