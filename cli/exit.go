package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// exit prints err and returns its exit code, see Main.
func exit(a *app.App, cmd *cobra.Command, err error) int {
	if code := app.ExitError(0); errors.As(err, &code) {
		return int(code)
	}
	e := (*api.Error)(nil)
	cannot := errors.As(err, &e) && e.ExitCode != 0
	for _, one := range each(err) {
		line := text.Plain(one.Error())
		if cannot {
			line = text.CannotRun(one.Error())
		}
		fmt.Fprintln(a.Err, "bulkhead: "+line)
	}
	switch {
	case e == nil || e.Detail == "":
	case a.Detail:
		fmt.Fprintln(a.Err, strings.TrimRight(e.Detail, "\n"))
	default:
		fmt.Fprintln(a.Err, "(run it again with --detail for more; bulkhead check tests this host)")
	}
	switch {
	case e != nil && e.ExitCode != 0:
		return e.ExitCode
	case slices.Contains([]string{"run", "exec", "attach", "debug"}, cmd.Name()):
		return 125
	}
	return 1
}

// each returns the errors joined in err, or err alone.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		return joined.Unwrap()
	}
	return []error{err}
}
