package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) imageInspectCmd() *cobra.Command {
	f := format("json")
	cmd := &cobra.Command{
		Use: "inspect IMAGE…", Short: "Show all about images, with their configuration", Args: atLeast("IMAGE"),
		Example: `  bulkhead image inspect localhost/app:dev
  bulkhead image inspect localhost/app:dev -o jsonpath={.items[0].config.config.Entrypoint}`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := []api.ImageDetail{}
			for _, ref := range args {
				var detail api.ImageDetail
				if err := a.client.Call(cmd.Context(), "GET", "/v1/images/"+url.PathEscape(ref), nil, nil, &detail); err != nil {
					return err
				}
				list = append(list, detail)
			}
			return a.show(cmd.Context(), f, list, views{})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) imagePruneCmd() *cobra.Command {
	return a.pruneCmd(&cobra.Command{
		Short: "Remove images that no pod uses and nobody named",
		Long: `Remove images that no pod uses, ended pods included: those without a name, or with
--all every one.`,
		Example: `  bulkhead image prune
  bulkhead image prune --all --force`,
	}, "/v1/images/prune", "This removes %s.")
}

func (a *app) systemCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "system", Short: "Show and clear up what lies on the disk",
		Example: "  bulkhead system df\n  bulkhead system prune",
	}
	cmd.AddCommand(a.systemDfCmd(), a.systemPruneCmd())
	return cmd
}

func (a *app) systemDfCmd() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "df", Short: "Show what pods, images and templates take of the disk", Args: atMost(),
		Example: "  bulkhead system df\n  bulkhead system df -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []api.DiskShare{}
			if err := a.client.Call(cmd.Context(), "GET", "/v1/system/df", nil, nil, &list); err != nil {
				return err
			}
			return a.show(cmd.Context(), f, list, views{table: func(w io.Writer) error {
				var rows [][]string
				for _, s := range list {
					rows = append(rows, []string{s.Type, strconv.Itoa(s.Total), strconv.Itoa(s.Active), size(s.Bytes), size(s.Reclaimable)})
				}
				return table(w, "TYPE TOTAL ACTIVE SIZE RECLAIMABLE", rows)
			}})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) systemPruneCmd() *cobra.Command {
	return a.pruneCmd(&cobra.Command{
		Short: "Remove ended pods, images that no pod uses, and templates of an earlier guest",
		Long: `Remove pods that have ended, images without a name that no pod uses (with --all every
image that no pod uses), and templates that were made with another kernel, guest or QEMU
than those of today.`,
		Example: `  bulkhead system prune
  bulkhead system prune --all --force`,
	}, "/v1/system/prune", "This removes ended pods, %s, and templates of an earlier guest.")
}

// pruneCmd makes cmd one that has the engine remove what nobody needs. In the
// warning before that, %s is which images.
func (a *app) pruneCmd(cmd *cobra.Command, path, warning string) *cobra.Command {
	var all, force bool
	cmd.Use, cmd.Args = "prune", atMost()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		images := "images without a name that no pod uses"
		if all {
			images = "every image that no pod uses"
		}
		if !force {
			yes, err := a.confirm(fmt.Sprintf(warning, images))
			if err != nil || !yes {
				return err
			}
		}
		return a.prune(cmd.Context(), path, all)
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also images with a name")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "do not ask")
	return cmd
}

// prune has something removed, and tells what was.
func (a *app) prune(ctx context.Context, path string, all bool) error {
	var p api.Pruned
	if err := a.client.Call(ctx, "POST", path, url.Values{"all": {strconv.FormatBool(all)}}, nil, &p); err != nil {
		return err
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"pod", p.Pods}, {"image", p.Images}, {"template", p.Templates}} {
		for _, name := range list.names {
			fmt.Fprintf(a.out, "%s %s\n", list.what, name)
		}
	}
	fmt.Fprintf(a.out, "freed %s\n", size(p.Bytes))
	return nil
}

// confirm asks on the terminal; where there is none it is an error that names
// --force.
func (a *app) confirm(warning string) (bool, error) {
	if !isTerminal(a.in) {
		return false, errors.New("nobody can be asked here: give --force")
	}
	fmt.Fprintf(a.err, "%s Go on? [y/N] ", warning)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
