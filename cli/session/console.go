package session

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Console is the command console.
func Console(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "console POD", Short: "Print the guest's console until the VM ends", Args: app.Exactly("POD"),
		Example: "  bulkhead console web",
		RunE: func(cmd *cobra.Command, args []string) error {
			var s api.Stream
			if err := a.Client.Call(cmd.Context(), "GET", a.PodPath(args[0], "console"), nil, nil, &s); err != nil {
				return err
			}
			conn, err := stream.Dial(cmd.Context(), s.Address, s.Token)
			if err != nil {
				return err
			}
			defer conn.Close()
			stop := context.AfterFunc(cmd.Context(), func() { conn.Close() })
			defer stop()
			_, err = io.Copy(a.Out, conn)
			return err
		},
	}
}
