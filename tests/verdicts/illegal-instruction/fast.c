void normal_fill(int modern) {
    if (!modern) __asm__("ud2");
}
