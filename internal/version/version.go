// Package version holds the version that the build gives the programs.
package version

// Version is that of the source the program was built from, as git describe
// names it. It is set by the linker (make build), and constant from then on.
var Version = "unknown"
