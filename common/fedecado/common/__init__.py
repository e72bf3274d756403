"""What coordinator and workers share: parameter layout, errors, settings."""
