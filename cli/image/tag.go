package image

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func tag(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "tag IMAGE NAME…", Short: "Add names to an image", Args: app.AtLeast("IMAGE", "NAME"),
		Long: `Add names to an image. A NAME without a registry becomes localhost/NAME, and one without
a tag becomes NAME:latest. A name that another image has moves to this one.`,
		Example: "  bulkhead image tag registry.example.org/app:1.2 app:stable",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Client.Call(cmd.Context(), "POST", "/v1/images/tag", nil, api.TagRequest{Image: args[0], Names: args[1:]}, nil)
		},
	}
}
