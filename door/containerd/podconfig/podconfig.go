// Package podconfig reads the CRI's configuration of a pod sandbox, a message of containerd's Sandbox API. It turns the
// configuration into the bundle of a pod without a pause container.
//
// It decodes only the fields that it uses. The CRI's own package would cost the front more than a megabyte of memory.
package podconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// Type is the end of the message's type URL.
const Type = "runtime.v1.PodSandboxConfig"

var errInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid configuration of a pod sandbox")

// Mode is the CRI's scope of a namespace.
type Mode int

// Node is the mode of a namespace that is the host's.
const Node Mode = 2

// Config is the configuration of a pod sandbox.
type Config struct {
	Name, Namespace, UID string
	Hostname             string
	LogDirectory         string
	// DNS is nil if the pod has the host's resolv.conf.
	DNS               *DNS
	Annotations       map[string]string
	CgroupParent      string
	Sysctls           map[string]string
	Network, PID, IPC Mode
	// UserNamespace means that the pod's users are others on the host.
	UserNamespace bool
	// Resources are the sums over the pod's containers, with zeros if the client states none.
	Resources Resources
}

// DNS is the content of resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// Resources are the resources that size a VM.
type Resources struct{ CPUPeriod, CPUQuota, CPUShares, MemoryLimit int64 }

// Parse decodes a message. A nil message and one without a value mean a pod without any settings.
func Parse(message *anypb.Any) (Config, error) {
	var c Config
	if len(message.GetValue()) == 0 {
		return c, nil
	}
	if !strings.HasSuffix(message.TypeUrl, Type) {
		return c, fmt.Errorf("%w: type %.100q: must be %s", errInvalid, message.TypeUrl, Type)
	}
	if err := c.decode(message.Value); err != nil {
		return Config{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return c, nil
}

// decode decodes a PodSandboxConfig of k8s.io/cri-api/pkg/apis/runtime/v1.
func (c *Config) decode(b []byte) error {
	return fields{
		1: message(fields{1: text(&c.Name), 2: text(&c.UID), 3: text(&c.Namespace)}),
		2: text(&c.Hostname),
		3: text(&c.LogDirectory),
		4: func(v value) error {
			c.DNS = &DNS{}
			return message(fields{1: texts(&c.DNS.Servers), 2: texts(&c.DNS.Searches), 3: texts(&c.DNS.Options)})(v)
		},
		7: entry(&c.Annotations),
		8: message(fields{
			1: text(&c.CgroupParent),
			2: message(fields{1: message(c.namespaces())}),
			3: entry(&c.Sysctls),
			5: message(fields{
				1: number(&c.Resources.CPUPeriod), 2: number(&c.Resources.CPUQuota),
				3: number(&c.Resources.CPUShares), 4: number(&c.Resources.MemoryLimit),
			}),
		}),
	}.decode(b)
}

func (c *Config) namespaces() fields {
	return fields{
		1: number(&c.Network), 2: number(&c.PID), 3: number(&c.IPC),
		5: func(v value) error {
			var mode Mode // the pod's own is the default
			err := message(fields{1: number(&mode)})(v)
			c.UserNamespace = mode != Node
			return err
		},
	}
}

// value is the value of one field.
type value struct {
	kind   protowire.Type
	bytes  []byte
	number uint64
}

// fields decode the fields of a message by their numbers. Others are skipped.
type fields map[protowire.Number]func(value) error

var errWire = errors.New("a field has the wrong type")

func (f fields) decode(b []byte) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		v := value{kind: kind}
		switch kind {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if decode := f[num]; decode != nil {
			if err := decode(v); err != nil {
				return fmt.Errorf("field %d: %w", num, err)
			}
		}
	}
	return nil
}

func message(f fields) func(value) error {
	return func(v value) error {
		if v.kind != protowire.BytesType {
			return errWire
		}
		return f.decode(v.bytes)
	}
}

func text(s *string) func(value) error {
	return func(v value) error {
		if v.kind != protowire.BytesType {
			return errWire
		}
		*s = string(v.bytes)
		return nil
	}
}

func texts(list *[]string) func(value) error {
	return func(v value) error {
		var s string
		err := text(&s)(v)
		*list = append(*list, s)
		return err
	}
}

func number[N ~int | ~int64](n *N) func(value) error {
	return func(v value) error {
		if v.kind != protowire.VarintType {
			return errWire
		}
		*n = N(v.number)
		return nil
	}
}

// entry decodes one entry of a map.
func entry(m *map[string]string) func(value) error {
	return func(v value) error {
		var key, val string
		if err := message(fields{1: text(&key), 2: text(&val)})(v); err != nil {
			return err
		}
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = val
		return nil
	}
}
