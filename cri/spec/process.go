package spec

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// process applies the container's configuration and its image.
func process(out *specs.Process, in Input) error {
	config, security := in.Container, in.Container.GetLinux().GetSecurityContext()
	var err error
	if out.Args, err = args(config.GetCommand(), config.GetArgs(), in.Image); err != nil {
		return err
	}
	if out.User, err = user(security, in.Image.User); err != nil {
		return err
	}
	if out.Capabilities, err = capabilities(security); err != nil {
		return err
	}
	if out.Env, err = environment(config, in.Image); err != nil {
		return err
	}
	cwd := config.GetWorkingDir()
	if cwd == "" {
		cwd = in.Image.WorkingDir
	}
	if cwd == "" {
		cwd = "/"
	}
	if !strings.HasPrefix(cwd, "/") {
		return fmt.Errorf("%w: working directory %q is not absolute", oci.ErrInvalid, cwd)
	}
	out.Cwd = cwd
	if err := oci.SetRlimits(out, in.Own.Rlimits); err != nil {
		return err
	}
	if out.Terminal = config.GetTty(); out.Terminal {
		out.ConsoleSize = oci.ConsoleSize(in.Own.Size.Width, in.Own.Size.Height)
	}
	out.NoNewPrivileges = security.GetNoNewPrivs() && !security.GetPrivileged()
	if resources := config.GetLinux().GetResources(); resources != nil {
		adjust := int(min(max(resources.GetOomScoreAdj(), -1000), 1000))
		out.OOMScoreAdj = &adjust
	}
	return nil
}

// args merges a container's command and arguments with the image's. The command replaces the entrypoint and drops the
// image's cmd; args replace the cmd. An empty result is an error.
func args(command, args []string, image imagev1.ImageConfig) ([]string, error) {
	if len(command) == 0 {
		command = image.Entrypoint
		if len(args) == 0 {
			args = image.Cmd
		}
	}
	merged := append(append([]string(nil), command...), args...)
	if len(merged) == 0 {
		return nil, fmt.Errorf("%w: no command: neither the container nor its image has one", oci.ErrInvalid)
	}
	if merged[0] == "" {
		return nil, fmt.Errorf("%w: the command is an empty string", oci.ErrInvalid)
	}
	for i, arg := range merged {
		if strings.ContainsRune(arg, 0) {
			return nil, fmt.Errorf("%w: argument %d contains a zero byte", oci.ErrInvalid, i)
		}
	}
	return merged, nil
}

// environment merges the container's variables over the image's. Values are kept byte for byte.
func environment(config *runtimeapi.ContainerConfig, image imagev1.ImageConfig) ([]string, error) {
	env := append([]string(nil), image.Env...)
	for _, variable := range config.GetEnvs() {
		key, value := variable.GetKey(), string(variable.GetValue())
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("%w: environment variable %q", oci.ErrInvalid, key)
		}
		env = oci.SetEnv(env, key, value)
	}
	env = oci.DefaultEnv(env, "PATH", oci.DefaultPath)
	if config.GetTty() {
		env = oci.DefaultEnv(env, "TERM", "xterm")
	}
	return env, nil
}

// user leaves names to the guest, which has the image's /etc/passwd. Numbers are also written as names, because the
// guest looks up a user's groups by number.
func user(security *runtimeapi.LinuxContainerSecurityContext, image string) (specs.User, error) {
	var user specs.User
	for _, group := range security.GetSupplementalGroups() {
		id, err := id("supplemental group", group)
		if err != nil {
			return user, err
		}
		user.AdditionalGids = append(user.AdditionalGids, id)
	}
	imageUser, group, _ := strings.Cut(image, ":")
	name := cmp.Or(imageUser, "0")
	switch uid := security.GetRunAsUser(); {
	case uid != nil:
		n, err := id("run_as_user", uid.GetValue())
		if err != nil {
			return user, err
		}
		user.UID = n
		if of, number, _ := containerv1.ParseID(name); !number || of != n {
			group = "" // it belongs to another user
		}
		name = strconv.FormatUint(uint64(n), 10)
	case security.GetRunAsUsername() != "" && security.GetRunAsUsername() != name:
		name, group, _ = strings.Cut(security.GetRunAsUsername(), ":")
	}
	if gid := security.GetRunAsGroup(); gid != nil {
		if security.GetRunAsUser() == nil && security.GetRunAsUsername() == "" {
			return user, fmt.Errorf("%w: run_as_group without run_as_user", oci.ErrInvalid)
		}
		n, err := id("run_as_group", gid.GetValue())
		if err != nil {
			return user, err
		}
		user.GID, group = n, strconv.FormatUint(uint64(n), 10)
	}
	user.Username = name
	if group != "" {
		user.Username += ":" + group
	}
	switch policy := security.GetSupplementalGroupsPolicy(); policy {
	case runtimeapi.SupplementalGroupsPolicy_Merge:
	case runtimeapi.SupplementalGroupsPolicy_Strict:
		user.Username = name + ":" + group + ":" + agentv1.StrictGroups
	default:
		return user, fmt.Errorf("%w: supplemental groups policy %v", oci.ErrNotSupported, policy)
	}
	return user, nil
}

// id also rejects 2^32-1, which means "no change" to the kernel: the process would stay root.
func id(field string, value int64) (uint32, error) {
	if value < 0 || value >= math.MaxUint32 {
		return 0, fmt.Errorf("%w: %s %d is out of range", oci.ErrInvalid, field, value)
	}
	return uint32(value), nil
}
