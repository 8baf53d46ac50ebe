"""What single values of the chart come to, without a cluster."""

import unittest

import chart


def pool_spec(rendered, name):
    """The spec of the Pods of a pool that is a StatefulSet."""
    return chart.one(rendered, "StatefulSet", f"rel-switchyard-{name}")["spec"]["template"]["spec"]


class ImagesTest(unittest.TestCase):
    OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"

    def image(self, pool, defaults=None, worker=None):
        rendered = chart.objects(values={"image": {"prefix": "h", "tag": "t"}, "images": {"worker": worker or {}},
                                         "poolDefaults": {"image": defaults or {}}, "pools": {"p": {"image": pool}}})
        return pool_spec(rendered, "p")["containers"][0]["image"]

    def test_a_pools_own_image_takes_no_tag_or_digest_from_elsewhere(self):
        for above in ({"worker": {"repository": "h/w", "tag": "old", "digest": self.OLD}},
                      {"defaults": {"repository": "h/w", "tag": "old", "digest": self.OLD}},
                      {"defaults": {"repository": "h/w"}, "worker": {"repository": "h/v", "digest": self.OLD}}):
            for pool, want in (({"tag": "new"}, "h/w:new"), ({"repository": "h/own"}, "h/own:t"),
                               ({"repository": "h/own", "tag": "new"}, "h/own:new"), ({"digest": self.NEW}, f"h/w@{self.NEW}"),
                               ({"tag": "new", "digest": self.NEW}, f"h/w@{self.NEW}")):
                with self.subTest(pool=pool, above=above):
                    self.assertEqual(self.image(pool, **above), want)

    def test_without_one_it_has_that_of_all(self):
        self.assertEqual(self.image({}), "h/worker:t")
        self.assertEqual(self.image({}, worker={"digest": self.OLD}), f"h/worker@{self.OLD}")
        self.assertEqual(self.image({}, defaults={"tag": "d"}, worker={"digest": self.OLD}), "h/worker:d")
        self.assertEqual(self.image({"digest": ""}, defaults={"digest": self.OLD}), "h/worker:t")


if __name__ == "__main__":
    unittest.main(verbosity=2)
