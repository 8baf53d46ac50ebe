"""The bill of materials of an image: SPDX 2.3, with each package and each file that is in it."""

import hashlib
import json
import re


def document(image, tree, packages, version, created):
    """The SPDX JSON of an image whose files are `tree`. Each file belongs to one package."""
    namespace = hashlib.sha256(image.digest.encode()).hexdigest()
    name = image.reference
    own = {"SPDXID": "SPDXRef-Package-switchyard", "name": "switchyard", "versionInfo": version,
           "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
           "licenseDeclared": "Apache-2.0"}
    listed, files, relations = [own], [], []
    ids = {"switchyard": own["SPDXID"]}
    for package in packages:
        ids[package.name] = "SPDXRef-Package-" + _id(package.name)
        listed.append({
            "SPDXID": ids[package.name], "name": package.name, "versionInfo": package.version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseDeclared": "NOASSERTION",
            "licenseComments": f"/usr/share/doc/{package.name}/copyright in the image",
            "checksums": [{"algorithm": "SHA256", "checksumValue": package.digest}],
            "externalRefs": [{
                "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": f"pkg:deb/debian/{package.name}@{_escaped(package.version)}"
                                    "?arch=amd64"}]})
    for path, file in tree.regular().items():
        file_id = "SPDXRef-File-" + hashlib.sha256(path.encode()).hexdigest()[:24]
        files.append({
            "SPDXID": file_id, "fileName": "./" + path,
            "checksums": [
                {"algorithm": "SHA1", "checksumValue": hashlib.sha1(file.data).hexdigest()},
                {"algorithm": "SHA256", "checksumValue": hashlib.sha256(file.data).hexdigest()}]})
        relations.append(_relation(ids[file.origin], "CONTAINS", file_id))
    relations += [_relation("SPDXRef-DOCUMENT", "DESCRIBES", p["SPDXID"]) for p in listed]
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": name, "documentNamespace": f"urn:switchyard:image:{namespace}",
        "comment": f"manifest digest {image.digest}",
        "creationInfo": {"created": created, "creators": ["Tool: switchyard-deploy-image"]},
        "packages": listed, "files": files, "relationships": relations}, indent=1) + "\n"


def _id(name):
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _escaped(version):
    return version.replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")


def _relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
