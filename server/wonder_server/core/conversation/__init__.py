"""The conversation planner: state, decisions, planning and effects."""
