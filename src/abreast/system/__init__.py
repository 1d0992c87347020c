"""The operating system: directories and names of files; nothing of abreast itself."""
