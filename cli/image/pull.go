package image

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/progress"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func pull(a *app.App) *cobra.Command {
	var quiet bool
	var owner user
	verify := true
	cmd := &cobra.Command{
		Use:   "pull IMAGE…",
		Short: "Pull images from a registry",
		Long: `Pull images from a registry. registries.conf names mirrors and plain-HTTP registries,
auth.json has the credentials (bulkhead login), policy.json says which images may be
pulled, and the environment names proxies.`,
		Example: "  bulkhead image pull registry.example.org/app:1.2",
		Args:    app.AtLeast("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, ref := range args {
				if err := fetch(a, cmd, "/v1/images/pull", owner, api.PullRequest{Image: ref, Insecure: !verify}, quiet); err != nil {
					return err
				}
			}
			return nil
		},
	}
	owner.add(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress bars")
	addTLSVerify(cmd, &verify)
	return cmd
}

// addTLSVerify adds podman's flag for registries without a trusted certificate.
func addTLSVerify(cmd *cobra.Command, verify *bool) {
	cmd.Flags().BoolVar(verify, "tls-verify", true, "require HTTPS and a valid certificate; false also allows plain HTTP")
}

// fetch makes one image call, draws its progress and prints the image's id.
func fetch(a *app.App, cmd *cobra.Command, path string, owner user, req any, quiet bool) error {
	query, err := owner.query()
	if err != nil {
		return err
	}
	bars := progress.New(a.Err, quiet)
	defer bars.Close()
	return a.Client.Stream(cmd.Context(), "POST", path, query, req, func(m api.Message) error {
		if m.Progress != nil {
			bars.Update(*m.Progress)
		}
		if m.Image != nil {
			bars.Close()
			fmt.Fprintln(a.Out, m.Image.ID)
		}
		return nil
	})
}
