// Command gen writes docs/oci-config.md.
package main

import (
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/oci/fields"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], fields.Markdown(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
