"""The policies that come with the scheduler, and the interfaces of your own."""
