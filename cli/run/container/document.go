package container

// The part of a Pod that the flags can set.
type (
	podDocument struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
		Spec       podSpec  `json:"spec"`
	}
	metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	podSpec struct {
		RestartPolicy         string       `json:"restartPolicy"`
		Grace                 *int64       `json:"terminationGracePeriodSeconds,omitempty"`
		Hostname              string       `json:"hostname,omitempty"`
		HostnameOverride      string       `json:"hostnameOverride,omitempty"`
		HostUsers             *bool        `json:"hostUsers,omitempty"`
		ShareProcessNamespace bool         `json:"shareProcessNamespace,omitempty"`
		OS                    *named       `json:"os,omitempty"`
		HostAliases           []hostAlias  `json:"hostAliases,omitempty"`
		DNSPolicy             string       `json:"dnsPolicy,omitempty"`
		DNSConfig             *dnsConfig   `json:"dnsConfig,omitempty"`
		SecurityContext       *podSecurity `json:"securityContext,omitempty"`
		Containers            []container  `json:"containers"`
		Volumes               []volume     `json:"volumes,omitempty"`
	}
	named struct {
		Name string `json:"name"`
	}
	hostAlias struct {
		IP        string   `json:"ip"`
		Hostnames []string `json:"hostnames"`
	}
	dnsConfig struct {
		Nameservers []string    `json:"nameservers,omitempty"`
		Searches    []string    `json:"searches,omitempty"`
		Options     []dnsOption `json:"options,omitempty"`
	}
	dnsOption struct {
		Name  string  `json:"name"`
		Value *string `json:"value,omitempty"`
	}
	podSecurity struct {
		SupplementalGroups []int64    `json:"supplementalGroups,omitempty"`
		Sysctls            []variable `json:"sysctls,omitempty"`
	}
	container struct {
		Name            string         `json:"name"`
		Image           string         `json:"image"`
		ImagePullPolicy string         `json:"imagePullPolicy"`
		Command         []string       `json:"command,omitempty"`
		Args            []string       `json:"args,omitempty"`
		WorkingDir      string         `json:"workingDir,omitempty"`
		Env             []variable     `json:"env,omitempty"`
		Stdin           bool           `json:"stdin,omitempty"`
		StdinOnce       bool           `json:"stdinOnce,omitempty"`
		TTY             bool           `json:"tty,omitempty"`
		Resources       *resources     `json:"resources,omitempty"`
		Lifecycle       *lifecycle     `json:"lifecycle,omitempty"`
		Security        *security      `json:"securityContext,omitempty"`
		VolumeMounts    []volumeMount  `json:"volumeMounts,omitempty"`
		VolumeDevices   []volumeDevice `json:"volumeDevices,omitempty"`
	}
	variable struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	resources struct {
		Limits   map[string]string `json:"limits,omitempty"`
		Requests map[string]string `json:"requests,omitempty"`
	}
	lifecycle struct {
		StopSignal string `json:"stopSignal"`
	}
	security struct {
		RunAsUser    *uint32         `json:"runAsUser,omitempty"`
		RunAsGroup   *uint32         `json:"runAsGroup,omitempty"`
		Privileged   bool            `json:"privileged,omitempty"`
		ReadOnlyRoot bool            `json:"readOnlyRootFilesystem,omitempty"`
		Escalation   *bool           `json:"allowPrivilegeEscalation,omitempty"`
		Capabilities *capabilities   `json:"capabilities,omitempty"`
		Seccomp      *seccompProfile `json:"seccompProfile,omitempty"`
		ProcMount    string          `json:"procMount,omitempty"`
	}
	capabilities struct {
		Add  []string `json:"add,omitempty"`
		Drop []string `json:"drop,omitempty"`
	}
	seccompProfile struct {
		Type             string `json:"type"`
		LocalhostProfile string `json:"localhostProfile,omitempty"`
	}
	volume struct {
		Name     string    `json:"name"`
		HostPath *hostPath `json:"hostPath,omitempty"`
		EmptyDir *emptyDir `json:"emptyDir,omitempty"`
		Claim    *claim    `json:"persistentVolumeClaim,omitempty"`
	}
	claim struct {
		Name string `json:"claimName"`
	}
	hostPath struct {
		Path string `json:"path"`
		Type string `json:"type,omitempty"`
	}
	emptyDir struct {
		Medium    string `json:"medium,omitempty"`
		SizeLimit string `json:"sizeLimit,omitempty"`
		Mode      *int32 `json:"mode,omitempty"`
	}
	volumeMount struct {
		Name      string   `json:"name"`
		MountPath string   `json:"mountPath"`
		ReadOnly  bool     `json:"readOnly,omitempty"`
		Options   []string `json:"bindMountOptions,omitempty"`
	}
	volumeDevice struct {
		Name       string `json:"name"`
		DevicePath string `json:"devicePath"`
	}
)

// only returns the pod's only container.
func (p *podDocument) only() *container { return &p.Spec.Containers[0] }

// security returns the container's securityContext, and creates it if necessary.
func (c *container) security() *security {
	if c.Security == nil {
		c.Security = &security{}
	}
	return c.Security
}

// annotate sets an annotation of the pod.
func (p *podDocument) annotate(key, value string) {
	if p.Metadata.Annotations == nil {
		p.Metadata.Annotations = map[string]string{}
	}
	p.Metadata.Annotations[key] = value
}

// security returns the pod's securityContext, and creates it if necessary.
func (p *podDocument) security() *podSecurity {
	if p.Spec.SecurityContext == nil {
		p.Spec.SecurityContext = &podSecurity{}
	}
	return p.Spec.SecurityContext
}
