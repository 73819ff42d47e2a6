// Command man writes a manual page for each command of bulkhead and bulkhead-oci. It is a separate program, because the
// libraries for manual pages would make the command line half a megabyte larger.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/bulkhead-project/bulkhead/cli"
	"github.com/bulkhead-project/bulkhead/door/oci/command"
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

// write fills dir with bulkhead.1, bulkhead-run.1, bulkhead-oci.1 and so on. The same version at the same
// SOURCE_DATE_EPOCH gives the same bytes.
func write(version, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, root := range []*cobra.Command{cli.Command(), command.Command()} {
		quiet(root)
		header := &doc.GenManHeader{Section: "1", Source: "Bulkhead " + version, Manual: "Bulkhead"}
		if err := doc.GenManTree(root, header, dir); err != nil {
			return err
		}
	}
	return nil
}

// quiet leaves out the generator and the date of each page.
func quiet(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		quiet(sub)
	}
}
