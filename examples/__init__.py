"""Programs that use dnnc as their readers would."""
