package container

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// processFlags describe the container's main process.
type processFlags struct {
	env, envFiles, groups           []string
	user, workdir, entrypoint, pull string
	init                            bool
}

func (f *processFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.env, "env", "e", nil, "image: environment variable, NAME=VALUE; NAME alone takes this command's value")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "image: file with a variable on each line; --env overrides it")
	flags.StringVarP(&f.user, "user", "u", "", "image: user to run as: NAME or UID, optionally with :GROUP or :GID")
	flags.StringSliceVar(&f.groups, "group-add", nil, "image: additional GID of the user")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "image: working directory")
	flags.StringVar(&f.entrypoint, "entrypoint", "", `image: program to run instead of the image's own; '["sh","-c"]' for one with arguments`)
	flags.StringVar(&f.pull, "pull", "missing", "image: when to pull the image: missing, always or never")
	flags.BoolVar(&f.init, "init", false,
		"image: run an init as process 1, which reaps processes; signals then end the command as outside a container")
}

func (f *processFlags) apply(p *podDocument) error {
	c := p.only()
	c.WorkingDir, p.Spec.ShareProcessNamespace = f.workdir, f.init
	for _, apply := range []func(*container) error{f.setEntrypoint, f.setEnv, f.setPull} {
		if err := apply(c); err != nil {
			return err
		}
	}
	if err := f.setUser(p); err != nil {
		return err
	}
	for _, text := range f.groups {
		gid, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return fmt.Errorf("--group-add %q: must be the number of a group", text)
		}
		p.security().SupplementalGroups = append(p.security().SupplementalGroups, int64(gid))
	}
	return nil
}

func (f *processFlags) setEntrypoint(c *container) error {
	if f.entrypoint == "" {
		return nil
	}
	command := []string{f.entrypoint}
	if strings.HasPrefix(f.entrypoint, "[") {
		command = nil
		if err := json.Unmarshal([]byte(f.entrypoint), &command); err != nil || len(command) == 0 {
			return fmt.Errorf(`--entrypoint %q: must be a program, or a list such as ["sh","-c"]`, f.entrypoint)
		}
	}
	c.Command = verbatim(command)
	return nil
}

// setEnv sets the environment. Variables of --env override those of files, and later ones override earlier ones.
func (f *processFlags) setEnv(c *container) error {
	var all []string
	for _, name := range f.envFiles {
		lines, err := linesOf("--env-file", name)
		if err != nil {
			return err
		}
		env, err := app.Environment(lines)
		if err != nil {
			return fmt.Errorf("--env-file %s: %w", name, err)
		}
		all = append(all, env...)
	}
	env, err := app.Environment(f.env)
	if err != nil {
		return fmt.Errorf("--env %w", err)
	}
	at := map[string]int{}
	for _, text := range append(all, env...) {
		name, value, _ := strings.Cut(text, "=")
		v := variable{name, verbatim([]string{value})[0]}
		if i, there := at[name]; there {
			c.Env[i] = v
			continue
		}
		at[name] = len(c.Env)
		c.Env = append(c.Env, v)
	}
	return nil
}

// setUser sets numbers in the Pod's fields. Names are the image's, so an annotation carries them.
func (f *processFlags) setUser(p *podDocument) error {
	if f.user == "" {
		return nil
	}
	user, group, both := strings.Cut(f.user, ":")
	if user == "" || both && group == "" || strings.ContainsAny(group, ": ") {
		return fmt.Errorf("--user %q: must be NAME or UID, optionally with :GROUP or :GID", f.user)
	}
	c := p.only()
	uid, isUID, err := decimal(user)
	gid, isGID := uint32(0), true
	if both && err == nil {
		gid, isGID, err = decimal(group)
	}
	switch {
	case err != nil:
		return fmt.Errorf("--user %q: %w", f.user, err)
	case !isUID || !isGID:
		p.annotate(annotations.User+c.Name, f.user)
		return nil
	}
	if c.security().RunAsUser = &uid; both {
		c.security().RunAsGroup = &gid
	}
	return nil
}

// decimal parses the number of a user or group. is is false for a name.
func decimal(text string) (n uint32, is bool, err error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, false, nil
	}
	id, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, true, fmt.Errorf("%s is not a number from 0 to %d", text, math.MaxInt32)
	}
	return uint32(id), true, nil
}

func (f *processFlags) setPull(c *container) error {
	policy, ok := map[string]string{"missing": "IfNotPresent", "always": "Always", "never": "Never"}[f.pull]
	if !ok {
		return fmt.Errorf("--pull %q: use missing or always or never", f.pull)
	}
	c.ImagePullPolicy = policy
	return nil
}
