package run

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// imageFlags are the flags of run that describe the container of an image; for
// files the documents do that.
type imageFlags struct {
	stdin, tty                           bool
	env                                  []string
	volumes                              volumeFlags
	name, cpus, memory, user             string
	workdir, entrypoint, imagePullPolicy string
}

func (f *imageFlags) add(flags *pflag.FlagSet) {
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.BoolVarP(&f.stdin, "interactive", "i", false, "image: pass stdin on")
	of.BoolVarP(&f.tty, "tty", "t", false, "image: give the container a terminal")
	of.StringArrayVarP(&f.env, "env", "e", nil, "image: NAME=VALUE in the environment; NAME alone takes this command's")
	of.StringVar(&f.name, "name", "", "image: name of the pod (default: the image's and some letters)")
	of.StringVar(&f.cpus, "cpus", "", "image: limit of CPU: 1.5 is one and a half processors")
	of.StringVarP(&f.memory, "memory", "m", "", "image: limit of memory: 512m; without one, half of the host's, from 512 MiB to 2 GiB")
	of.StringVarP(&f.user, "user", "u", "", "image: user to run as: UID[:GID]")
	of.StringVarP(&f.workdir, "workdir", "w", "", "image: working directory")
	of.StringVar(&f.entrypoint, "entrypoint", "", `image: program in place of the image's own; '["sh","-c"]' for one with arguments`)
	of.StringVar(&f.imagePullPolicy, "pull", "missing", "image: when to pull it: missing, always or never")
	f.volumes.add(of)
	of.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{ofImage: nil} })
	flags.AddFlagSet(of)
}

// ofImage marks the flags that are for an image.
const ofImage = "image"

// refuse names the flags that were given although the run is of files.
func refuse(cmd *cobra.Command) error {
	var given []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if _, yes := flag.Annotations[ofImage]; yes {
			given = append(given, "--"+flag.Name)
		}
	})
	if len(given) == 0 {
		return nil
	}
	return fmt.Errorf("%s: for an image only: the documents of a file say it themselves", strings.Join(given, ", "))
}
