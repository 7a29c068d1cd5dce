"""The programming interface of HitGNN (Table II)."""
