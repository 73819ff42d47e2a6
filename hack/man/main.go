// Command man writes a manual page for each command of the command line. It is a separate program, because the
// libraries for manual pages would make the command line half a megabyte larger.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/bulkhead-project/bulkhead/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: man VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write fills dir with bulkhead.1, bulkhead-run.1 and so on. The same version at the same SOURCE_DATE_EPOCH gives
// the same bytes.
func write(version, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := cli.Command()
	quiet(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Bulkhead " + version, Manual: "Bulkhead"}, dir)
}

// quiet leaves out the generator and the date of each page.
func quiet(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		quiet(sub)
	}
}
