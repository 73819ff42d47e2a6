package run

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// sourceOf says whether run's first argument is taken for a file of documents or
// for an image, and where it could be either a note that tells so.
func sourceOf(arg string) (isFile bool, note string) {
	if app.IsFile(arg) || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return true, "" // no image is called so
	}
	if _, err := os.Stat(arg); err != nil {
		return false, ""
	}
	return true, fmt.Sprintf(
		"%s is taken for a file, because it is there: write docker.io/library/%[1]s, or another whole name, for an image", arg)
}

// files takes what follows the first file: more files and flags, in any order.
func files(cmd *cobra.Command, args []string) ([]string, error) {
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	if err := flags.Parse(args[1:]); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	return append(args[:1:1], flags.Args()...), nil
}
