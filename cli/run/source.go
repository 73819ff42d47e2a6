package run

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// sourceOf reports whether run's first argument names a file, by its ending or as a path. Otherwise it names an
// image. note warns about an existing file of that name, which is not read.
func sourceOf(arg string) (isFile bool, note string) {
	if app.IsFile(arg) || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return true, "" // no image has such a name
	}
	if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
		note = fmt.Sprintf("%s is taken as an image; to run the file of that name, write ./%[1]s", arg)
	}
	return false, note
}

// files parses the arguments after the first file: more files and flags, in any order.
func files(cmd *cobra.Command, args []string) ([]string, error) {
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	if err := flags.Parse(args[1:]); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	return append(args[:1:1], flags.Args()...), nil
}
