"""``kdump report``: what one verification and the brokers' own small files tell of directories."""
