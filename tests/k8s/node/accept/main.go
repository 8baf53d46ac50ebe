// Says whether an API server would accept objects, without one: accept CRDS <OBJECTS.
//
// CRDS is a folder of CustomResourceDefinitions. Each object is decoded into the Go types of its project, where an
// unknown field is an error; those of the definitions are also checked against their schemas, as the API server does, and
// by what the controllers of LeaderWorkerSet and DisaggregatedSet refuse. Prints "KIND NAME" of each accepted object.
// Exit status 1: one is not accepted, and standard error says why.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	disaggregatedset "sigs.k8s.io/lws/api/disaggregatedset/v1"
	leaderworkerset "sigs.k8s.io/lws/api/leaderworkerset/v1"
	disaggregatedutils "sigs.k8s.io/lws/pkg/utils/disaggregatedset"
	"sigs.k8s.io/lws/pkg/webhooks"
	disaggregatedwebhook "sigs.k8s.io/lws/pkg/webhooks/disaggregatedset"
	"sigs.k8s.io/yaml"
)

// A definition of one kind and version.
type definition struct {
	props  *apiextensions.JSONSchemaProps
	schema *structural.Structural
}

func readDefinitions(folder string) (map[schema.GroupVersionKind]definition, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no definitions: %w", folder, err)
	}
	found := map[schema.GroupVersionKind]definition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var outer apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &outer); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range outer.Spec.Versions {
			var props apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
				version.Schema.OpenAPIV3Schema, &props, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			made, err := structural.NewStructural(&props)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			kind := schema.GroupVersionKind{Group: outer.Spec.Group, Version: version.Name, Kind: outer.Spec.Names.Kind}
			found[kind] = definition{&props, made}
		}
	}
	return found, nil
}

// fits fills in the defaults and says what the schema does not allow.
func (d definition) fits(object map[string]any) error {
	unknown := pruning.PruneWithOptions(runtime.DeepCopyJSON(object), d.schema, true,
		structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return fmt.Errorf("unknown fields: %v", unknown)
	}
	defaulting.Default(object, d.schema)
	validator, _, err := validation.NewSchemaValidator(d.props)
	if err != nil {
		return err
	}
	problems := validation.ValidateCustomResource(nil, object, validator)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, d.schema, object)...)
	if rules := cel.NewValidator(d.schema, true, celconfig.PerCallLimit); rules != nil {
		more, _ := rules.Validate(context.Background(), nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
		problems = append(problems, more...)
	}
	return problems.ToAggregate()
}

// groupsAreAllowed asks the webhook of LeaderWorkerSet.
func groupsAreAllowed(set *leaderworkerset.LeaderWorkerSet) error {
	hook := &webhooks.LeaderWorkerSetWebhook{}
	if err := hook.Default(context.Background(), set); err != nil {
		return err
	}
	_, err := hook.ValidateCreate(context.Background(), set)
	return err
}

// isAllowed asks the webhooks, for the parts of a DisaggregatedSet under the names that its controller gives them.
func isAllowed(object runtime.Object) error {
	switch set := object.(type) {
	case *leaderworkerset.LeaderWorkerSet:
		return groupsAreAllowed(set)
	case *disaggregatedset.DisaggregatedSet:
		_, err := (&disaggregatedwebhook.DisaggregatedSetWebhook{}).ValidateCreate(context.Background(), set)
		revision := disaggregatedutils.ComputeRevision(set.Spec.Roles)
		for _, role := range set.Spec.Roles {
			part := &leaderworkerset.LeaderWorkerSet{ObjectMeta: role.ObjectMeta, Spec: role.Spec}
			part.Name = disaggregatedutils.GenerateName(set.Name, role.Name, revision)
			part.Namespace = "default"
			err = errors.Join(err, groupsAreAllowed(part))
		}
		return err
	}
	return nil
}

type acceptor struct {
	definitions map[schema.GroupVersionKind]definition
	decoder     runtime.Decoder
}

func (a acceptor) accept(document []byte) (string, error) {
	var object unstructured.Unstructured
	if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
		return "", err
	}
	name := object.GetKind() + " " + object.GetName()
	defined, isCustom := a.definitions[object.GroupVersionKind()]
	if isCustom {
		// Numbers of YAML are floats, those of the API server whole where they can be.
		text, err := object.MarshalJSON()
		if err == nil {
			err = object.UnmarshalJSON(text)
		}
		if err == nil {
			object.SetNamespace("default")
			err = defined.fits(object.Object)
		}
		if err == nil {
			document, err = object.MarshalJSON()
		}
		if err != nil {
			return name, err
		}
	}
	decoded, _, err := a.decoder.Decode(document, nil, nil)
	if err == nil {
		err = isAllowed(decoded)
	}
	return name, err
}

func run(folder string, input io.Reader) error {
	definitions, err := readDefinitions(folder)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(leaderworkerset.AddToScheme(scheme))
	utilruntime.Must(disaggregatedset.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(input))
	var problems error
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return problems
		}
		if err != nil {
			return err
		}
		if name, err := (acceptor{definitions, decoder}).accept(document); err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", name, err))
		} else {
			fmt.Println(name)
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: accept CRDS <OBJECTS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
