// Package version holds the version that the build gives the programs.
package version

// Version is the version of the program's source, as git describe names it. The linker sets it (make build).
var Version = "unknown"
