package pod

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Rm is the command rm.
func Rm(a *app.App) *cobra.Command {
	var force, all bool
	t := app.Targets{Files: true}
	cmd := &cobra.Command{
		Use:     "rm POD… | FILE…",
		Aliases: []string{"delete"},
		Short:   "Remove ended pods, or with --force running ones",
		Long: `Remove pods that have ended, or with --force running ones. Choose them by full name, by
workload (deployment/NAME), by files that describe them (*.yaml, *.yml, *.json, or - for
stdin), by labels (-l), or with --all.`,
		Example: `  bulkhead rm web
  bulkhead rm -f web db
  bulkhead rm -f examples/deployment.yaml
  bulkhead rm -f -l app=web
  bulkhead rm -f --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := a.Targets(cmd.Context(), t, args)
			switch {
			case err != nil:
				return err
			case all && len(args) > 0:
				return errors.New("give either pods or --all")
			case all && t.Selector == "":
				pods, err := a.Pods(cmd.Context(), url.Values{})
				if err != nil {
					return err
				}
				refs = nil
				for _, p := range pods {
					refs = append(refs, p.Namespace+"/"+p.Name)
				}
			case len(args) == 0 && t.Selector == "":
				return errors.New("name the pods to remove, or give --selector or --all")
			}
			q := url.Values{"force": {strconv.FormatBool(force)}}
			return a.EachPod(refs, func(ref string) (string, error) {
				return a.Change(cmd.Context(), "DELETE", a.PodPath(ref, ""), q, nil)
			})
		},
	}
	t.Add(cmd)
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill pods that still run")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "remove every pod")
	return cmd
}
