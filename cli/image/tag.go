package image

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func tag(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "tag IMAGE NAME…", Short: "Give an image more names", Args: app.AtLeast("IMAGE", "NAME"),
		Long: `Give an image more names. A NAME without a registry is one of this machine
(localhost/NAME), without a tag it is NAME:latest. One that means another image
already is moved.`,
		Example: "  bulkhead image tag registry.example.org/app:1.2 app:stable",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Client.Call(cmd.Context(), "POST", "/v1/images/tag", nil, api.TagRequest{Image: args[0], Names: args[1:]}, nil)
		},
	}
}
