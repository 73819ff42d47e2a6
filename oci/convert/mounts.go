package convert

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// mount is one mount in conversion.
type mount struct {
	specs.Mount
	options
	field string // its path in config.json
	at    string // its cleaned destination
}

// kernels are the file systems that the guest's kernel mounts itself.
var kernels = []string{
	"proc", "sysfs", "tmpfs", "ramfs", "devpts", "mqueue", "cgroup", "cgroup2", "bpf", "debugfs", "tracefs", "securityfs", "fusectl",
	"hugetlbfs", "binfmt_misc",
}

// mounts converts the mounts, in their order.
func (c *conversion) mounts() error {
	for i, of := range c.spec.Mounts {
		m := mount{
			Mount: of, options: parseOptions(of.Options), field: fmt.Sprintf("mounts[%d]", i), at: path.Clean("/" + of.Destination),
		}
		if of.Destination == "" || m.at == "/" {
			return invalid(m.field+".destination", "%.200q", of.Destination)
		}
		if err := c.mount(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *conversion) mount(m mount) error {
	bind := m.bind || m.Type == "bind"
	overlay := m.Type == "overlay" && !bind
	if (m.idmap || len(m.UIDMappings)+len(m.GIDMappings) > 0) && !bind && !overlay {
		return unsupported(m.field, "an idmapped mount of type %.32q at %.200s", m.Type, m.at)
	}
	switch {
	case bind:
		return c.bindMount(m)
	case overlay:
		return c.overlay(m)
	case m.Type == "":
		return invalid(m.field+".type", "the mount at %.200s has none", m.at)
	case !slices.Contains(kernels, m.Type):
		return unsupported(m.field+".type", "%.32q at %.200s: the VM has no such file system", m.Type, m.at)
	}
	if slices.Contains(m.ignored, "shared") || slices.Contains(m.ignored, "rshared") {
		c.ignore(m.field+".options", "mounts never leave the container")
	}
	shared := func(o string) bool { return o == "shared" || o == "rshared" }
	c.addMount(true, specs.Mount{
		Destination: m.at, Type: m.Type, Source: m.Type, Options: slices.DeleteFunc(slices.Clone(m.Options), shared),
	})
	return nil
}

// bindMount converts a bind mount of the host.
func (c *conversion) bindMount(m mount) error {
	if len(m.rest) > 0 {
		return unsupported(m.field+".options", "%.64q of the bind mount at %.200s", m.rest[0], m.at)
	}
	for _, option := range m.ignored {
		why := "a bind mount keeps the options of its file system"
		if strings.HasSuffix(option, "shared") {
			why = "mounts never leave the container; it receives the host's"
		}
		c.ignore(m.field+".options", fmt.Sprintf("%q: %s", option, why))
	}
	if m.Source == "" {
		return invalid(m.field+".source", "the bind mount at %.200s has none", m.at)
	}
	source := m.Source
	if !filepath.IsAbs(source) {
		source = filepath.Join(c.Bundle, source)
	}
	m.Source = filepath.Clean(source)
	if done, err := c.shm(m); done || err != nil {
		return err
	}
	if done, err := c.guestsOwn(m); done || err != nil {
		return err
	}
	node, err := c.Host.Node(m.Source)
	if err != nil {
		return fmt.Errorf("%s.source: %w", m.field, err)
	}
	switch node.Type {
	case Dir, Regular:
	case Char:
		return c.charMount(m, node)
	case Block:
		return c.blockMount(m, node)
	default:
		return unsupported(m.field+".source", "%.200q is a %s: processes in a VM cannot reach it", m.Source, node.Type)
	}
	idmap, err := c.idmap(m)
	if err != nil {
		return err
	}
	c.share(m, Tree{Source: m.Source, Dir: node.Type == Dir, Recursive: m.recursive, IDMap: idmap})
	return nil
}

// share adds a tree and its mount in the guest.
func (c *conversion) share(m mount, tree Tree) {
	tree.Destination, tree.Attributes, tree.Below = m.at, m.attributes, m.below
	tree.Follow = m.follow || !m.propagated && c.propagate
	guest := append(slices.Clone(m.guest), "rprivate")
	if tree.Follow {
		guest[len(guest)-1] = "rslave"
	}
	c.addOwn(tree.Dir, containerv1.Mount{Destination: m.at, Source: containerv1.Share{Name: TreeName(len(c.plan.Trees))}, Options: guest})
	c.plan.Trees = append(c.plan.Trees, tree)
}

// addOwn adds a mount of package containerv1.
func (c *conversion) addOwn(dir bool, m containerv1.Mount) {
	kind, source, options := m.Encode()
	c.addMount(dir, specs.Mount{Destination: m.Destination, Type: kind, Source: source, Options: options})
}

// addMount adds a mount of a directory or a file, and its mount point if the guest cannot create it.
func (c *conversion) addMount(dir bool, m specs.Mount) {
	covers := func(earlier specs.Mount) bool {
		return strings.HasPrefix(m.Destination+"/", strings.TrimSuffix(earlier.Destination, "/")+"/")
	}
	if c.spec.Root.Readonly && !slices.ContainsFunc(c.guest.Mounts, covers) {
		c.plan.MountPoints = append(c.plan.MountPoints, MountPoint{m.Destination, dir})
	}
	c.guest.Mounts = append(c.guest.Mounts, m)
}

// overlay adds an overlay file system that the door mounts.
func (c *conversion) overlay(m mount) error {
	for _, option := range m.rest {
		if strings.ContainsRune(option, '\n') {
			return invalid(m.field+".options", "%.64q", option)
		}
	}
	if !slices.ContainsFunc(m.rest, func(o string) bool { return strings.HasPrefix(o, "lowerdir") }) {
		return invalid(m.field+".options", "the overlay at %.200s has no lowerdir", m.at)
	}
	for _, option := range m.ignored {
		c.ignore(m.field+".options", fmt.Sprintf("%q: mounts never leave the container", option))
	}
	idmap, err := c.idmap(m)
	if err != nil {
		return err
	}
	c.share(m, Tree{Overlay: m.rest, Dir: true, IDMap: idmap})
	return nil
}

// idmap returns the mappings of an idmapped mount.
func (c *conversion) idmap(m mount) (*IDMap, error) {
	uids, gids := m.UIDMappings, m.GIDMappings
	switch {
	case !m.idmap && len(uids)+len(gids) == 0:
		return nil, nil
	case len(uids)+len(gids) == 0:
		uids, gids = c.host.UIDMappings, c.host.GIDMappings
	}
	if len(uids) == 0 || len(gids) == 0 {
		return nil, invalid(m.field, "an idmapped mount at %.200s without uidMappings and gidMappings", m.at)
	}
	if err := checkMappings(m.field+".uidMappings", uids); err != nil {
		return nil, err
	}
	if err := checkMappings(m.field+".gidMappings", gids); err != nil {
		return nil, err
	}
	return &IDMap{UIDs: slices.Clone(uids), GIDs: slices.Clone(gids), Recursive: m.ridmap}, nil
}
