package image

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// user is the instance that a command's images belong to. Empty means the engine of bulkhead's own commands.
type user string

func (u *user) add(cmd *cobra.Command) {
	help := "use the images of bulkhead " + strings.Join(api.ImageUsers, " or ") + ", which have their own"
	cmd.Flags().StringVar((*string)(u), "for", "", help)
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(api.ImageUsers, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// query returns the user as a query to the engine.
func (u user) query() (url.Values, error) {
	if u == "" {
		return nil, nil
	}
	return url.Values{"for": {string(u)}}, app.Choice("for", string(u), api.ImageUsers...)
}
