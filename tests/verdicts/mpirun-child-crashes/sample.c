void sample(long seeds) { *(volatile int *)seeds = 1; }
