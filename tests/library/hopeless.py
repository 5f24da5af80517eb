"""A policy under which nothing ever runs."""


class Never:
    def may_admit(self, request, num_needed_blocks, state):
        return False

    def wake_at(self, now):
        return None
